-- The statements that bring the rows of the new table into the old one, in order, and drop the new
-- one.
WITH columns AS (
    SELECT a.attname, a.attnum FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = $OID AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''),
list AS (SELECT string_agg(quote_ident(c.attname), ', ' ORDER BY c.attnum) AS names FROM columns c),
identities AS (
    SELECT d.refobjid AS table_oid, d.objid AS oid, a.attname, s.seqincrement > 0 AS rises
    FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_sequence s ON s.seqrelid = d.objid
        JOIN pg_catalog.pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
    WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass
        AND d.refobjid IN ($OID, $NEW_OID) AND d.deptype = 'i'),
statements AS (
    SELECT 1 AS step, 'DELETE FROM ' || $OLD AS sql
    UNION ALL SELECT 2, format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s', $OLD, l.names, l.names, $NEW)
        FROM list l
    -- Numbers that the new rows got are taken.
    UNION ALL SELECT 3, format('SELECT setval(%L, %s(o.last_value, n.last_value), '
            'CASE WHEN o.last_value = n.last_value THEN o.is_called OR n.is_called '
            'WHEN %s(o.last_value, n.last_value) = o.last_value THEN o.is_called ELSE n.is_called END) FROM %s o, %s n',
            o.oid::regclass, e.most, e.most, o.oid::regclass, n.oid::regclass)
        FROM identities o JOIN identities n USING (attname),
            LATERAL (SELECT CASE WHEN o.rises THEN 'greatest' ELSE 'least' END AS most) e
        WHERE o.table_oid = $OID AND n.table_oid = $NEW_OID
    UNION ALL SELECT 4, 'DROP TABLE ' || $NEW)
SELECT s.sql FROM statements s ORDER BY s.step, s.sql
