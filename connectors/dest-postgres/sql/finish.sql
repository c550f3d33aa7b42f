-- The statements that put the new table in the place of the old one, in order.
WITH it AS (SELECT * FROM pg_catalog.pg_class c WHERE c.oid = $OID),
made AS (SELECT * FROM pg_catalog.pg_class c WHERE c.oid = $NEW_OID),
schema AS (SELECT quote_ident(n.nspname) || '.' AS name FROM pg_catalog.pg_namespace n, it WHERE n.oid = it.relnamespace),
owned AS (
    SELECT d.refobjid AS table_oid, q.oid, q.relname, q.relacl, q.relowner, d.deptype, a.attname,
        s.seqincrement > 0 AS rises, s.seqtypid
    FROM pg_catalog.pg_depend d
        JOIN pg_catalog.pg_class q ON q.oid = d.objid AND q.relkind = 'S'
        JOIN pg_catalog.pg_sequence s ON s.seqrelid = q.oid
        JOIN pg_catalog.pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
    WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass
        AND d.refobjid IN ($OID, $NEW_OID)),
identities AS (
    SELECT o.oid, o.relname, o.relacl, o.relowner, n.oid AS new_oid, n.relname AS new_name, n.relacl AS new_acl, o.rises,
        o.seqtypid
    FROM owned o JOIN owned n USING (attname)
    WHERE o.table_oid = $OID AND o.deptype = 'i' AND n.table_oid = $NEW_OID AND n.deptype = 'i'),
-- Of each index what it is without its name; of several that are alike the older one first.
indexes AS (
    SELECT i.indrelid, c.oid, c.relname, s.definition,
        row_number() OVER (PARTITION BY i.indrelid, s.definition ORDER BY c.oid) AS place
    FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid,
        LATERAL (SELECT concat(i.indisprimary, i.indisunique, i.indisexclusion, i.indimmediate,
            substr(pg_get_indexdef(c.oid), length(concat('CREATE ', CASE WHEN i.indisunique THEN 'UNIQUE ' END,
                'INDEX ', quote_ident(c.relname), ' ON ', i.indrelid::regclass)) + 1)) AS definition) s
    WHERE i.indrelid IN ($OID, $NEW_OID)),
statistics AS (
    SELECT s.*, row_number() OVER (PARTITION BY s.stxrelid ORDER BY s.oid) AS place
    FROM pg_catalog.pg_statistic_ext s WHERE s.stxrelid IN ($OID, $NEW_OID)),
-- What others may do, of the old and of the new: the server's defaults for new objects may differ.
grants AS (
    SELECT 'TABLE' AS kind, $OLD AS name, NULL::name AS part, it.relowner, it.relacl AS old, made.relacl AS new, 'r'::"char" AS letter
        FROM it, made
    UNION ALL
    SELECT 'SEQUENCE', schema.name || quote_ident(i.relname), NULL, i.relowner, i.relacl, i.new_acl, 's' FROM identities i, schema
    UNION ALL
    SELECT 'TABLE', $OLD, a.attname, it.relowner, a.attacl, NULL, 'c' FROM pg_catalog.pg_attribute a, it
        WHERE a.attrelid = it.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attacl IS NOT NULL),
statements AS (
    SELECT 10 AS step, 0 AS place, format('ALTER SEQUENCE %s OWNED BY %s.%I', o.oid::regclass, $NEW, o.attname) AS sql
        FROM owned o WHERE o.table_oid = $OID AND o.deptype = 'a'
    UNION ALL
    SELECT 11, 0, format('SELECT setval(%L, %s(o.last_value, n.last_value), '
            'CASE WHEN o.last_value = n.last_value THEN o.is_called OR n.is_called '
            'WHEN %s(o.last_value, n.last_value) = o.last_value THEN o.is_called ELSE n.is_called END) FROM %s o, %s n',
            i.new_oid::regclass, e.most, e.most, i.oid::regclass, i.new_oid::regclass)
        FROM identities i, LATERAL (SELECT CASE WHEN i.rises THEN 'greatest' ELSE 'least' END AS most) e
    UNION ALL SELECT 12, 0, format('ALTER SEQUENCE %s AS %s', i.new_oid::regclass, format_type(i.seqtypid, NULL))
        FROM identities i
    UNION ALL SELECT 20, 0, 'DROP TABLE ' || $OLD
    UNION ALL SELECT 21, 0, format('ALTER TABLE %s RENAME TO %I', $NEW, it.relname) FROM it
    UNION ALL
    SELECT 30, 0, format('ALTER INDEX %s%I RENAME TO %I', schema.name, n.relname, o.relname)
        FROM indexes o JOIN indexes n USING (definition, place), schema
        WHERE o.indrelid = $OID AND n.indrelid = $NEW_OID AND o.relname <> n.relname
    UNION ALL
    SELECT 31, 0, format('ALTER TABLE %s RENAME CONSTRAINT %I TO %I', $OLD, n.conname, o.conname)
        FROM pg_catalog.pg_constraint o JOIN pg_catalog.pg_constraint n ON n.contype = o.contype
            AND pg_get_constraintdef(n.oid) = pg_get_constraintdef(o.oid)
        WHERE o.conrelid = $OID AND n.conrelid = $NEW_OID AND o.contype = 'n' AND o.conname <> n.conname
    UNION ALL
    SELECT 32, 0, format('ALTER STATISTICS %s%I RENAME TO %I', schema.name, n.stxname, o.stxname)
        FROM statistics o JOIN statistics n USING (place), schema
        WHERE o.stxrelid = $OID AND n.stxrelid = $NEW_OID AND o.stxname <> n.stxname
    UNION ALL
    SELECT 33, 0, format('ALTER STATISTICS %s%I SET STATISTICS %s', schema.name, s.stxname, to_jsonb(s) ->> 'stxstattarget')
        FROM statistics s, schema WHERE s.stxrelid = $OID AND (to_jsonb(s) ->> 'stxstattarget')::int >= 0
    UNION ALL
    SELECT 34, 0, format('ALTER SEQUENCE %s%I RENAME TO %I', schema.name, i.new_name, i.relname)
        FROM identities i, schema WHERE i.new_name <> i.relname
    UNION ALL
    SELECT 35, a.attnum, format('ALTER INDEX %s ALTER COLUMN %s SET STATISTICS %s', i.indexrelid::regclass, a.attnum, a.attstattarget)
        FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indexrelid
        WHERE i.indrelid = $OID AND a.attnum > 0 AND a.attstattarget >= 0
    UNION ALL
    SELECT 40, 0, format('REVOKE ALL ON %s %s FROM %s', g.kind, g.name, r.role)
        FROM grants g, LATERAL (SELECT DISTINCT CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(e.grantee)) END AS role
            FROM aclexplode(coalesce(g.new, acldefault(g.letter, g.relowner))) e) r
        WHERE g.letter <> 'c' AND g.old IS DISTINCT FROM g.new
    UNION ALL
    SELECT 41, 0, format('GRANT %s%s ON %s %s TO %s%s', e.privilege_type, ' (' || quote_ident(g.part) || ')', g.kind, g.name,
            CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(e.grantee)) END,
            CASE WHEN e.is_grantable THEN ' WITH GRANT OPTION' END)
        FROM grants g, aclexplode(coalesce(g.old, acldefault(g.letter, g.relowner))) e
        WHERE g.old IS DISTINCT FROM g.new
    UNION ALL
    SELECT 50, 0, pg_get_triggerdef(g.oid) FROM pg_catalog.pg_trigger g WHERE g.tgrelid = $OID AND NOT g.tgisinternal
    UNION ALL
    SELECT 51, 0, format('ALTER TABLE %s %s TRIGGER %I', $OLD, CASE g.tgenabled WHEN 'D' THEN 'DISABLE'
            WHEN 'A' THEN 'ENABLE ALWAYS' ELSE 'ENABLE REPLICA' END, g.tgname)
        FROM pg_catalog.pg_trigger g WHERE g.tgrelid = $OID AND NOT g.tgisinternal AND g.tgenabled <> 'O'
    UNION ALL SELECT 52, 0, format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', $OLD) FROM it WHERE it.relrowsecurity
    UNION ALL SELECT 52, 0, format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', $OLD) FROM it WHERE it.relforcerowsecurity
    UNION ALL
    SELECT 53, 0, format('CREATE POLICY %I ON %s AS %s FOR %s TO %s%s%s', p.polname, $OLD,
            CASE WHEN p.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
            CASE p.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE' ELSE 'ALL' END,
            (SELECT string_agg(CASE r.role WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(r.role)) END, ', ' ORDER BY r.place)
                FROM unnest(p.polroles) WITH ORDINALITY AS r(role, place)),
            ' USING (' || pg_get_expr(p.polqual, p.polrelid) || ')',
            ' WITH CHECK (' || pg_get_expr(p.polwithcheck, p.polrelid) || ')')
        FROM pg_catalog.pg_policy p WHERE p.polrelid = $OID
    UNION ALL
    SELECT 60, 0, CASE it.relreplident WHEN 'n' THEN format('ALTER TABLE %s REPLICA IDENTITY NOTHING', $OLD)
            WHEN 'f' THEN format('ALTER TABLE %s REPLICA IDENTITY FULL', $OLD)
            ELSE (SELECT format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', $OLD, c.relname) FROM pg_catalog.pg_index i
                JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = it.oid AND i.indisreplident) END
        FROM it WHERE it.relreplident <> 'd'
    UNION ALL
    SELECT 61, 0, format('ALTER TABLE %s CLUSTER ON %I', $OLD, c.relname) FROM pg_catalog.pg_index i
        JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = $OID AND i.indisclustered
    UNION ALL SELECT 70, 0, format('COMMENT ON %s IS %L', c.what, c.text) FROM (
        SELECT 'TABLE ' || $OLD AS what, obj_description($OID, 'pg_class') AS text
        UNION ALL SELECT format('CONSTRAINT %I ON %s', k.conname, $OLD), obj_description(k.oid, 'pg_constraint')
            FROM pg_catalog.pg_constraint k WHERE k.conrelid = $OID
        UNION ALL SELECT format('INDEX %s', i.indexrelid::regclass), obj_description(i.indexrelid, 'pg_class')
            FROM pg_catalog.pg_index i WHERE i.indrelid = $OID
        UNION ALL SELECT format('TRIGGER %I ON %s', g.tgname, $OLD), obj_description(g.oid, 'pg_trigger')
            FROM pg_catalog.pg_trigger g WHERE g.tgrelid = $OID AND NOT g.tgisinternal
        UNION ALL SELECT format('POLICY %I ON %s', p.polname, $OLD), obj_description(p.oid, 'pg_policy')
            FROM pg_catalog.pg_policy p WHERE p.polrelid = $OID
        UNION ALL SELECT format('STATISTICS %s%I', schema.name, s.stxname), obj_description(s.oid, 'pg_statistic_ext')
            FROM statistics s, schema WHERE s.stxrelid = $OID
        UNION ALL SELECT format('SEQUENCE %s', i.oid::regclass), obj_description(i.oid, 'pg_class') FROM identities i) c
        WHERE c.text IS NOT NULL)
SELECT s.sql FROM statements s WHERE s.sql IS NOT NULL ORDER BY s.step, s.place, s.sql
