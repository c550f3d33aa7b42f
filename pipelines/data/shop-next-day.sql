-- What happens in the shop on the next day. psql "$SOURCE_URL" -f pipelines/data/shop-next-day.sql

-- A new customer, a changed one, and one that is marked as deleted.
INSERT INTO shop.customers (id, name, country, updated_at) VALUES (4, 'Dmitri', 'EE', '2026-11-03 08:00+00');
UPDATE shop.customers SET country = 'NO', updated_at = '2026-11-03 08:30+00' WHERE id = 2;
UPDATE shop.customers SET deleted_at = '2026-11-03 09:00+00', updated_at = '2026-11-03 09:00+00' WHERE id = 3;

INSERT INTO shop.orders (id, customer_id, total, ordered_on, updated_at)
    VALUES (4, 4, 88.80, '2026-11-03', '2026-11-03 08:10+00');
UPDATE shop.orders SET total = 240.00, updated_at = '2026-11-03 08:40+00' WHERE id = 2;

-- A new event, and one that was committed late: its time lies before the last event of the day before.
INSERT INTO shop.events (id, at, what) VALUES
    (4, '2026-11-02 09:58+00', 'Chiara asked for help'),
    (5, '2026-11-03 08:00+00', 'Dmitri signed up');
