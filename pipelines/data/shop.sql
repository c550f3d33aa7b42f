-- A small shop for the PostgreSQL examples. psql "$SOURCE_URL" -f pipelines/data/shop.sql

CREATE SCHEMA shop;

CREATE TABLE shop.customers (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    country char(2) NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    deleted_at timestamptz
);
CREATE INDEX ON shop.customers (updated_at);

CREATE TABLE shop.orders (
    id bigint PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES shop.customers,
    total numeric(12, 2) NOT NULL,
    ordered_on date NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON shop.orders (updated_at);

-- Rows are only added here, never changed.
CREATE TABLE shop.events (
    id bigint PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    what text NOT NULL
);
CREATE INDEX ON shop.events (at);

INSERT INTO shop.customers (id, name, country, updated_at) VALUES
    (1, 'Ada', 'GB', '2026-11-01 09:00+00'),
    (2, 'Björn', 'SE', '2026-11-01 09:05+00'),
    (3, 'Chiara', 'IT', '2026-11-02 10:00+00');
INSERT INTO shop.orders (id, customer_id, total, ordered_on, updated_at) VALUES
    (1, 1, 19.90, '2026-11-01', '2026-11-01 09:10+00'),
    (2, 2, 250.00, '2026-11-01', '2026-11-01 09:20+00'),
    (3, 1, 7.25, '2026-11-02', '2026-11-02 10:30+00');
INSERT INTO shop.events (id, at, what) VALUES
    (1, '2026-11-01 09:00+00', 'Ada signed up'),
    (2, '2026-11-01 09:05+00', 'Björn signed up'),
    (3, '2026-11-02 10:00+00', 'Chiara signed up');
