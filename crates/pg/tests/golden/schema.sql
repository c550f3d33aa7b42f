-- What golden.sh captures: every kind of type, and rows at the edges.
CREATE SCHEMA app;
CREATE TYPE app.mood AS ENUM ('sad', 'it''s ok', 'glücklich');
CREATE DOMAIN app.amount AS numeric(10,2) DEFAULT 0 CONSTRAINT positive CHECK (VALUE >= 0);
CREATE DOMAIN app.label AS app.mood NOT NULL;
CREATE TYPE app.point3 AS (x int, "Y y" numeric(6,3), mood app.mood, amount app.amount);
CREATE TYPE app.deep AS (tag text, points app.point3[], inner_point app.point3);
CREATE TYPE app.moodrange AS RANGE (subtype = app.mood);
CREATE TYPE app.deeprange AS RANGE (subtype = app.point3);
CREATE TABLE app.wide (
    id bigint PRIMARY KEY,
    c_bool boolean, c_int2 smallint, c_int4 integer, c_oid oid, c_float4 real,
    c_float8 double precision, c_text text, c_varchar varchar(20), c_bpchar char(5), c_name name,
    c_bytea bytea, c_uuid uuid, c_json json, c_jsonb jsonb, c_mood app.mood,
    c_amount app.amount, c_numeric numeric(12,2), c_numeric60 numeric(60,10), c_free numeric,
    c_negative numeric(5,-2), c_date date, c_time time, c_timestamp timestamp(3),
    c_timestamptz timestamptz, c_interval interval, c_timetz timetz, c_money money, c_inet inet,
    c_cidr cidr, c_macaddr macaddr, c_macaddr8 macaddr8, c_bit bit(5), c_varbit varbit(9),
    c_point point, c_path path, c_circle circle, c_tsvector tsvector, c_range int4range,
    c_multi nummultirange, c_class regclass, c_classes regclass[], c_xml xml, c_lsn pg_lsn,
    c_char "char", c_ints int[], c_texts text[], c_amounts app.amount[], c_decimals numeric(10,3)[],
    c_moods app.mood[], c_times timestamptz[], c_jsons jsonb[], c_inets inet[],
    c_point3 app.point3, c_deep app.deep, c_deeps app.deep[], c_moodrange app.moodrange,
    c_deepranges app.deeprange[], c_deepmulti app.deepmultirange,
    "Order ""x""" text, c_sum int GENERATED ALWAYS AS (c_int2 + 1) STORED
);
COMMENT ON COLUMN app.wide.c_text IS 'it''s a \ comment';
INSERT INTO app.wide VALUES (1,
    true, -32768, 2147483647, 4294967295, 1.5, '-0', 'naïve 🦀', 'varchar', 'ab', 'a name',
    '\x00ff10', '12345678-9abc-def0-1234-56789abcdef0', '{"b": 1,  "a": [null]}', '{"b":1,"a":2}',
    'glücklich', 12.50, -1234567890.05, -12345678901234567890123456789012345678901234567890.0123456789,
    12345678901234567890.000100, 12300, '2024-02-29', '23:59:59.999999', '1999-12-31 23:59:59.999',
    '2024-06-01 12:00:00.123456+02', '1 year 2 mons -3 days 04:05:06.000007', '10:00:00+05:30',
    '-12.34', '192.168.0.1/24', '10.0.0.0/8', '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05',
    '10101', '110011001', '(1.5,-2)', '((0,0),(1,1))', '<(1,2),3>', 'a:1 fat:2B', '[1,10)',
    '{[1.5,2),[4,)}', 'app.wide', '{app.wide,pg_class}', '<a>x</a>', '16/B374D848', 'x',
    '{1,NULL,3}', '{"a b",NULL,"",ü}', '{1.00,2.50}', '{0.001,-9999999.999}', '{sad,"it''s ok"}',
    '{2024-01-01 00:00:00+00,NULL}', array['{"a":1}'::jsonb], '{10.0.0.1,::1}',
    ROW(1, 2.345, 'sad', 7.00),
    ROW('t', ARRAY[ROW(1, 2, 'sad', 1), NULL, ROW(3, NULL, NULL, 0)]::app.point3[], ROW(9, 9.125, 'it''s ok', 2)),
    ARRAY[ROW('u', NULL, NULL), ROW('v', '{}', ROW(NULL, NULL, NULL, NULL))]::app.deep[],
    '[sad,"it''s ok"]',
    ARRAY[app.deeprange(ROW(1, 1, 'sad', 1), NULL), 'empty'::app.deeprange,
          app.deeprange(NULL, ROW(5, 1, 'sad', 1), '(]')],
    app.deepmultirange(app.deeprange(ROW(1, 1, 'sad', 1), ROW(2, 1, 'sad', 1)), app.deeprange(ROW(7, 1, 'sad', 1), NULL)),
    'quoted', DEFAULT);
INSERT INTO app.wide (id) VALUES (2);
INSERT INTO app.wide (id, c_bool, c_float4, c_float8, c_text, c_bpchar, c_bytea, c_numeric,
    c_numeric60, c_free, c_date, c_time, c_timestamp, c_timestamptz, c_interval, c_ints, c_texts)
VALUES (3, false, 'NaN', '-Infinity', '', '', '', 0, 0.0000000001, 0.000000000000000000001,
    '4714-11-24 BC', '00:00:00', '4714-11-24 00:00:00 BC', '1969-12-31 23:59:59.999999+00',
    '-178000000 years', '{}', '{}');
INSERT INTO app.wide (id, c_text, c_numeric, c_interval)
SELECT i, repeat(i::text, i), i * 1000.25, i * interval '1 hour 1 microsecond' FROM generate_series(4, 40) i;
-- Values that the portable forms cannot hold, one a column.
CREATE TABLE app.edges (
    id int, nan numeric(5,2), minus_infinity date, infinity timestamp, tz_infinity timestamptz,
    end_of_day time, long_interval interval, two_dimensions int[], lower_bound int[]
);
INSERT INTO app.edges VALUES (1, 'NaN', '-infinity', 'infinity', '-infinity', '24:00',
    '150000000 hours', '{{1,2},{3,4}}', '[2:3]={1,2}');
CREATE TABLE app.rows (
    id int, ignored app.amount, point app.point3, name text, decimals numeric(10,3)[], gone int, mood app.mood
);
ALTER TABLE app.rows DROP COLUMN gone;
INSERT INTO app.rows VALUES (1, NULL, ROW(1, 2.5, 'sad', 1), 'one', '{1.5,NULL}', 'sad'),
    (2, NULL, NULL, NULL, NULL, NULL), (3, NULL, ROW(NULL, 1, NULL, 0), '', '{}', 'glücklich');
CREATE VIEW app.view AS SELECT id, c_mood FROM app.wide;
