-- One table `types."t_schema_type"` (id, v) for each type that a column can have, made bottom-up:
-- the values of an array, a domain or a composite are picked from the tables of its parts.
CREATE TABLE gen.type AS
SELECT t.oid, t.typname::text AS name,
    quote_ident(n.nspname) || '.' || quote_ident(t.typname) AS sql,
    left('t_' || n.nspname || '_' || t.typname, 55) AS table_name,
    CASE WHEN t.typinput = 'array_in'::regproc THEN 'array' ELSE t.typtype::text END AS kind,
    CASE WHEN t.typinput = 'array_in'::regproc THEN ARRAY[t.typelem]
        WHEN t.typtype = 'd' THEN ARRAY[t.typbasetype]
        WHEN t.typtype = 'r' THEN ARRAY(SELECT rngsubtype FROM pg_range WHERE rngtypid = t.oid)
        WHEN t.typtype = 'm' THEN ARRAY(SELECT rngtypid FROM pg_range WHERE rngmultitypid = t.oid)
        WHEN t.typtype = 'c' THEN ARRAY(SELECT atttypid FROM pg_attribute
            WHERE attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped ORDER BY attnum)
        ELSE '{}' END AS parts,
    0 AS rows
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace LEFT JOIN pg_type e ON e.oid = t.typelem
-- Row types of the system's own tables and of ours here are left out, with their arrays.
WHERE t.typtype <> 'p' AND e.typtype IS DISTINCT FROM 'p' AND n.nspname NOT IN ('gen', 'types', 'pg_toast')
  AND NOT (n.nspname IN ('pg_catalog', 'information_schema')
           AND (t.typtype = 'c' OR (t.typinput = 'array_in'::regproc AND e.typtype = 'c')));
CREATE UNIQUE INDEX ON gen.type (table_name);

-- A value of the table of a type, by the number of an attempt: every second time one of the first
-- rows, which are the edges.
CREATE FUNCTION gen.pick(part oid, factor int) RETURNS text LANGUAGE sql AS $$
    SELECT format('(SELECT v FROM types.%I WHERE id = 1 + CASE WHEN $1 %% 2 = 0
        THEN ($1 / 2 + %s) %% %s ELSE $1 * %2$s %% %4$s END)', table_name, factor, least(rows, 25), rows)
    FROM gen.type WHERE oid = part
$$;

CREATE FUNCTION gen.expression(t gen.type) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    a text := gen.pick(t.parts[1], 17);
    b text := gen.pick(t.parts[1], 19);
    c text := gen.pick(t.parts[1], 23);
BEGIN
    RETURN CASE t.kind
        WHEN 'e' THEN format('(enum_range(NULL::%s))[1 + $1 %% %s]', t.sql,
            (SELECT count(*) FROM pg_enum WHERE enumtypid = t.oid))
        -- By way of text, see gen.modified.
        WHEN 'd' THEN format('%s::%s::text::%2$s', a, t.sql)
        -- ARRAY[] of a domain over an array would have two dimensions.
        WHEN 'array' THEN CASE WHEN (SELECT kind FROM gen.type WHERE oid = t.parts[1]) = 'd'
            THEN format('CASE $1 %% 3 WHEN 0 THEN ''{}''::%1$s ELSE array_append(array_append(
                array_append(''{}''::%1$s, %2$s), NULL), %3$s) END', t.sql, a, b)
            ELSE format('CASE $1 %% 5 WHEN 0 THEN ''{}''::%1$s WHEN 1 THEN ARRAY[%2$s]
            WHEN 2 THEN ARRAY[%2$s, NULL, %3$s, %4$s]
            WHEN 3 THEN ARRAY[ARRAY[%2$s, NULL], ARRAY[%3$s, %4$s]]
            ELSE ARRAY[ARRAY[ARRAY[%2$s]], ARRAY[ARRAY[%3$s]]] END', t.sql, a, b, c) END
        WHEN 'c' THEN format('ROW(%s)::%s', (
            SELECT string_agg(gen.pick(part, 2 * n::int + 1), ', ' ORDER BY n)
            FROM unnest(t.parts) WITH ORDINALITY AS u(part, n)), t.sql)
        WHEN 'r' THEN format('CASE $1 %% 7 WHEN 0 THEN ''empty''::%1$s WHEN 1 THEN %1$s(NULL, NULL, ''()'')
            WHEN 2 THEN %1$s(%2$s, NULL, ''[)'') WHEN 3 THEN %1$s(NULL, %2$s, ''(]'')
            ELSE %1$s(least(%2$s, %3$s), greatest(%2$s, %3$s),
                (ARRAY[''[]'', ''[)'', ''(]'', ''()''])[1 + $1 %% 4]) END', t.sql, a, b)
        WHEN 'm' THEN format('CASE $1 %% 4 WHEN 0 THEN %1$s() WHEN 1 THEN %1$s(%2$s)
            ELSE %1$s(%2$s, %3$s, %4$s) END', t.sql, a, b, c)
    END;
END $$;

-- Fills a table by attempts; those that the type refuses (a check, an overflow) are left out.
CREATE FUNCTION gen.fill(table_name text, expression text, attempts int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    insert text := format('INSERT INTO types.%I VALUES ($2, %s)', table_name, expression);
    filled int := 1;
BEGIN
    EXECUTE format('INSERT INTO types.%I VALUES (1, NULL)', table_name);
    FOR i IN 1..attempts LOOP
        BEGIN
            EXECUTE insert USING i, filled + 1;
            filled := filled + 1;
        EXCEPTION WHEN data_exception OR check_violation OR array_subscript_error THEN NULL;
        END;
    END LOOP;
    RETURN filled;
END $$;

CREATE FUNCTION gen.fill_base(t gen.type, count int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    base gen.base;
    filled int;
BEGIN
    SELECT * INTO base FROM gen.base b WHERE b.name = t.name;
    IF base IS NULL THEN
        RAISE EXCEPTION 'values.sql has no values for the type %', t.sql;
    END IF;
    EXECUTE format($q$INSERT INTO types.%1$I
        SELECT row_number() OVER (ORDER BY n), v FROM (
            SELECT 0 AS n, NULL::%2$s AS v
            UNION ALL SELECT n, e::%2$s FROM unnest($1) WITH ORDINALITY AS u(e, n)
            UNION ALL SELECT 1000 + i, (%3$s)::%2$s FROM (
                SELECT i, md5(i::text) AS h, random() AS r, (ARRAY['', 'a', '\', '"', '''', E'\n',
                    E'\t', 'é', '日本', '🦀', E'\r', 'NULL', '{', '}', ',', '(', ')', ' ', E'\x01', '%%',
                    'ﬁ', E'a\u0301', '\x00', '<&'])[1 + i %% 24] AS s
                FROM generate_series(1, $2) AS i) AS x
        ) AS v$q$, t.table_name, t.sql, base.expression)
    USING base.edges, CASE WHEN base.expression = 'NULL' THEN 0 ELSE count END;
    GET DIAGNOSTICS filled = ROW_COUNT;
    RETURN filled;
END $$;

CREATE FUNCTION gen.build(portable_rows int, base_rows int, rows_of_parts int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    portable text[] := ARRAY['bool', 'int2', 'int4', 'int8', 'oid', 'float4', 'float8', 'text', 'varchar',
        'bpchar', 'name', 'bytea', 'uuid', 'json', 'jsonb', 'numeric', 'date', 'time', 'timestamp',
        'timestamptz', 'interval'];
    t gen.type;
    filled int;
BEGIN
    PERFORM setseed(0.5);
    LOOP
        SELECT * INTO t FROM gen.type AS next WHERE rows = 0 AND NOT EXISTS (
            SELECT FROM gen.type AS part WHERE part.oid = ANY (next.parts) AND part.rows = 0)
            ORDER BY oid LIMIT 1;
        EXIT WHEN NOT FOUND;
        EXECUTE format('CREATE TABLE types.%I (id int PRIMARY KEY, v %s)', t.table_name, t.sql);
        IF t.kind = 'b' THEN
            filled := gen.fill_base(t, CASE WHEN t.name = ANY (portable) THEN portable_rows ELSE base_rows END);
        ELSE
            filled := gen.fill(t.table_name, gen.expression(t), rows_of_parts);
        END IF;
        IF t.kind = 'array' AND filled > 5 THEN
            -- Other lower bounds, with NULLs between.
            EXECUTE format('UPDATE types.%I SET v[-1] = v[1] WHERE id %% 3 = 0 AND array_ndims(v) = 1', t.table_name);
        END IF;
        UPDATE gen.type SET rows = filled WHERE oid = t.oid;
    END LOOP;
    SELECT * INTO t FROM gen.type WHERE rows = 0;
    IF FOUND THEN
        RAISE EXCEPTION 'the type % could not be made', t.sql;
    END IF;
END $$;

-- Types with modifiers, from the values of the type without. By way of text, because the server
-- itself rounds a timestamp to one that it does not read again (294277-01-01).
CREATE FUNCTION gen.modified(few int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    m record;
BEGIN
    FOR m IN SELECT * FROM (VALUES
        ('numeric(12,2)', 'numeric'), ('numeric(38,0)', 'numeric'), ('numeric(76,10)', 'numeric'), ('numeric(1000,500)', 'numeric'),
        ('numeric(5,-2)', 'numeric'), ('numeric(3,5)', 'float8'), ('varchar(10)', 'text'), ('char(5)', 'text'),
        ('bit(5)', 'varbit'), ('varbit(7)', 'varbit'), ('time(0)', 'time'), ('time(3)', 'time'),
        ('timetz(2)', 'timetz'), ('timestamp(0)', 'timestamp'), ('timestamp(3)', 'timestamp'),
        ('timestamptz(6)', 'timestamptz'), ('interval(3)', 'interval'),
        ('interval year to month', 'interval'), ('interval day to second(2)', 'interval'),
        ('interval hour', 'interval'), ('numeric(12,2)[]', '_numeric'), ('varchar(10)[]', '_text'),
        ('timestamp(3)[]', '_timestamp'), ('bit(3)[]', '_varbit'), ('char(4)[]', '_bpchar')
    ) AS v(ty, base) LOOP
        BEGIN
            EXECUTE format('CREATE TABLE types.%I (id int PRIMARY KEY, v %s)', 'm_' || m.ty, m.ty);
        EXCEPTION WHEN invalid_parameter_value THEN CONTINUE; -- A scale that older servers refuse.
        END;
        PERFORM gen.fill('m_' || m.ty, gen.pick(('pg_catalog.' || m.base)::regtype, 17) || '::' || m.ty || '::text::' || m.ty, few);
    END LOOP;
END $$;
