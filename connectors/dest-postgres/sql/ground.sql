-- Why a table cannot be swapped, and what makes another one like it, as one row of JSON.
WITH it AS (SELECT c.*, n.nspname FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = $OID),
depends AS (
    -- A row type and its array type stand for the table.
    SELECT d.* FROM it JOIN pg_catalog.pg_depend d
        ON d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = it.oid
    UNION ALL
    SELECT d.* FROM it JOIN pg_catalog.pg_type t ON t.oid = it.reltype
        JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_type'::regclass
            AND d.refobjid IN (t.oid, t.typarray)),
-- Those that are made again, or refused under a name of their own below.
unknown AS (
    SELECT d.* FROM depends d, it WHERE NOT (
        d.refclassid = 'pg_catalog.pg_class'::regclass AND CASE d.classid
            WHEN 'pg_catalog.pg_class'::regclass THEN d.deptype IN ('a', 'i') AND EXISTS (
                SELECT FROM pg_catalog.pg_class x WHERE x.oid = d.objid AND x.relkind IN ('i', 't', 'S'))
            WHEN 'pg_catalog.pg_type'::regclass THEN d.objid = it.reltype
            WHEN 'pg_catalog.pg_attrdef'::regclass THEN EXISTS (
                SELECT FROM pg_catalog.pg_attrdef x WHERE x.oid = d.objid AND x.adrelid = it.oid)
            WHEN 'pg_catalog.pg_constraint'::regclass THEN EXISTS (
                SELECT FROM pg_catalog.pg_constraint x WHERE x.oid = d.objid AND it.oid IN (x.conrelid, x.confrelid))
            WHEN 'pg_catalog.pg_trigger'::regclass THEN EXISTS (
                SELECT FROM pg_catalog.pg_trigger x WHERE x.oid = d.objid AND x.tgrelid = it.oid)
            WHEN 'pg_catalog.pg_policy'::regclass THEN EXISTS (
                SELECT FROM pg_catalog.pg_policy x WHERE x.oid = d.objid AND x.polrelid = it.oid)
            WHEN 'pg_catalog.pg_statistic_ext'::regclass THEN EXISTS (
                SELECT FROM pg_catalog.pg_statistic_ext x WHERE x.oid = d.objid AND x.stxrelid = it.oid)
            WHEN 'pg_catalog.pg_rewrite'::regclass THEN EXISTS (
                SELECT FROM pg_catalog.pg_rewrite x WHERE x.oid = d.objid AND x.ev_class = it.oid)
            WHEN 'pg_catalog.pg_publication_rel'::regclass THEN EXISTS (
                SELECT FROM pg_catalog.pg_publication_rel x WHERE x.oid = d.objid AND x.prrelid = it.oid)
            ELSE false END
        OR d.refclassid = 'pg_catalog.pg_type'::regclass AND d.deptype = 'i'
            AND d.classid = 'pg_catalog.pg_type'::regclass AND d.objid = (
                SELECT t.typarray FROM pg_catalog.pg_type t WHERE t.oid = it.reltype))),
sequences AS (
    SELECT q.oid, q.relacl, q.relowner, q.relnamespace, d.deptype, a.attname
    FROM depends d, it, pg_catalog.pg_class q, pg_catalog.pg_attribute a
    WHERE d.refclassid = 'pg_catalog.pg_class'::regclass AND d.classid = 'pg_catalog.pg_class'::regclass
        AND q.oid = d.objid AND q.relkind = 'S' AND a.attrelid = it.oid AND a.attnum = d.refobjsubid),
reasons AS (
    SELECT 1 AS place, 'it is not a plain table' AS reason FROM it WHERE it.relkind <> 'r' OR it.relpersistence = 't'
    UNION ALL SELECT 2, format('its owner is %I', pg_get_userbyid(it.relowner)) FROM it
        WHERE pg_get_userbyid(it.relowner) <> current_user
    UNION ALL SELECT 3, format('%I may not create tables in the schema %I', current_user, it.nspname) FROM it
        WHERE NOT (has_schema_privilege(it.relnamespace, 'CREATE') AND has_schema_privilege(it.relnamespace, 'USAGE'))
    UNION ALL SELECT 4, 'it inherits, is inherited from, or is a partition' FROM it
        WHERE it.relispartition OR EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE it.oid IN (h.inhrelid, h.inhparent))
    UNION ALL SELECT 5, 'it is a table of a composite type' FROM it WHERE it.reloftype <> 0
    UNION ALL SELECT 6, format('its access method is %I', m.amname) FROM it JOIN pg_catalog.pg_am m ON m.oid = it.relam
        WHERE m.amname <> 'heap'
    UNION ALL SELECT 7, 'it has no columns that rows fill' FROM it WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = it.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '')
    UNION ALL SELECT 10, format('foreign key %I of %s', k.conname, k.conrelid::regclass)
        FROM it JOIN pg_catalog.pg_constraint k ON it.oid IN (k.conrelid, k.confrelid) WHERE k.contype = 'f'
    UNION ALL SELECT 11, format('rule %I', r.rulename) FROM it JOIN pg_catalog.pg_rewrite r ON r.ev_class = it.oid
    UNION ALL SELECT 12, format('trigger %I fires on INSERT or DELETE', g.tgname)
        FROM it JOIN pg_catalog.pg_trigger g ON g.tgrelid = it.oid
        WHERE NOT g.tgisinternal AND g.tgenabled <> 'D' AND g.tgtype & 12 <> 0
    UNION ALL SELECT 13, format('constraint %I is not validated', k.conname)
        FROM it JOIN pg_catalog.pg_constraint k ON k.conrelid = it.oid WHERE NOT k.convalidated
    UNION ALL SELECT 14, format('index %s is not valid', i.indexrelid::regclass)
        FROM it JOIN pg_catalog.pg_index i ON i.indrelid = it.oid WHERE NOT (i.indisvalid AND i.indisready AND i.indislive)
    UNION ALL SELECT 15, format('publication %I: its subscribers would keep the old rows', b.pubname)
        FROM it JOIN pg_catalog.pg_publication b ON b.puballtables AND it.relpersistence = 'p' OR EXISTS (
            SELECT FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = b.oid AND r.prrelid = it.oid) $PUBLISHED
    UNION ALL SELECT 16, 'a subscription fills it' FROM it
        WHERE EXISTS (SELECT FROM pg_catalog.pg_subscription_rel r WHERE r.srrelid = it.oid)
    UNION ALL SELECT 17, format('event trigger %I', e.evtname) FROM it, pg_catalog.pg_event_trigger e
        WHERE e.evtenabled <> 'D'
    UNION ALL SELECT 18, 'security labels' FROM it WHERE EXISTS (SELECT FROM pg_catalog.pg_seclabel l
        WHERE l.classoid = 'pg_catalog.pg_class'::regclass AND (l.objoid = it.oid
            OR l.objoid IN (SELECT q.oid FROM sequences q)))
    UNION ALL SELECT DISTINCT 19, 'it belongs to an extension' FROM it, LATERAL (
            SELECT 'pg_catalog.pg_class'::regclass AS class, it.oid AS oid
            UNION ALL SELECT 'pg_catalog.pg_class'::regclass, i.indexrelid FROM pg_catalog.pg_index i WHERE i.indrelid = it.oid
            UNION ALL SELECT 'pg_catalog.pg_trigger'::regclass, g.oid FROM pg_catalog.pg_trigger g WHERE g.tgrelid = it.oid) o
        JOIN pg_catalog.pg_depend d ON d.classid = o.class AND d.objid = o.oid WHERE d.deptype IN ('e', 'x')
    UNION ALL SELECT 20, 'grants on its row type' FROM it JOIN pg_catalog.pg_type t ON t.oid = it.reltype
        WHERE t.typacl IS NOT NULL
    UNION ALL SELECT DISTINCT 21, format('grants made by %I', pg_get_userbyid(e.grantor)) FROM it,
        (SELECT it.relacl AS acl FROM it UNION ALL SELECT q.relacl FROM sequences q
         UNION ALL SELECT a.attacl FROM pg_catalog.pg_attribute a, it WHERE a.attrelid = it.oid AND NOT a.attisdropped) l,
        aclexplode(l.acl) e WHERE e.grantor <> it.relowner
    UNION ALL SELECT 22, format('statistics %I of another owner or schema', s.stxname)
        FROM it JOIN pg_catalog.pg_statistic_ext s ON s.stxrelid = it.oid
        WHERE s.stxowner <> it.relowner OR s.stxnamespace <> it.relnamespace
    UNION ALL SELECT 23, format('sequence %s of another owner or schema', q.oid::regclass) FROM it, sequences q
        WHERE q.relowner <> it.relowner OR q.relnamespace <> it.relnamespace
    UNION ALL SELECT DISTINCT 30, coalesce(
            (SELECT CASE v.relkind WHEN 'm' THEN 'materialized view ' ELSE 'view ' END || v.oid::regclass
             FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class v ON v.oid = r.ev_class
             WHERE u.classid = 'pg_catalog.pg_rewrite'::regclass AND r.oid = u.objid AND v.relkind IN ('v', 'm')),
            pg_describe_object(u.classid, u.objid, u.objsubid))
        FROM unknown u)
SELECT json_build_object(
    'reasons', (SELECT coalesce(json_agg(r.reason ORDER BY r.place, r.reason), '[]') FROM reasons r),
    'create', format('CREATE %sTABLE %s (LIKE %s INCLUDING ALL) USING heap%s%s',
        CASE it.relpersistence WHEN 'u' THEN 'UNLOGGED ' END, $NEW, $OLD,
        (SELECT format(' WITH (%s)', string_agg(format('%s%I = %L', o.toast, split_part(o.text, '=', 1),
                substr(o.text, strpos(o.text, '=') + 1)), ', '))
            FROM (SELECT '' AS toast, unnest(it.reloptions) AS text UNION ALL
                SELECT 'toast.', unnest(t.reloptions) FROM pg_catalog.pg_class t WHERE t.oid = it.reltoastrelid) o
            HAVING count(*) > 0),
        (SELECT format(' TABLESPACE %I', s.spcname) FROM pg_catalog.pg_tablespace s WHERE s.oid = it.reltablespace)),
    'shape', (SELECT coalesce(json_agg(s.sql), '[]') FROM (
        SELECT format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS %s', $NEW, a.attname, a.attstattarget) AS sql
            FROM pg_catalog.pg_attribute a
            WHERE a.attrelid = it.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attstattarget >= 0
        UNION ALL
        SELECT format('ALTER TABLE %s ALTER COLUMN %I SET (%s)', $NEW, a.attname, (SELECT string_agg(format('%I = %L',
                split_part(o, '=', 1), substr(o, strpos(o, '=') + 1)), ', ') FROM unnest(a.attoptions) o))
            FROM pg_catalog.pg_attribute a
            WHERE a.attrelid = it.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attoptions IS NOT NULL
        UNION ALL
        -- Rows that the stream leaves a number to get the next ones.
        SELECT format('SELECT setval(pg_get_serial_sequence(%L, %L), q.last_value, q.is_called) FROM %s q',
                $NEW, q.attname, q.oid::regclass)
            FROM sequences q WHERE q.deptype = 'i') s))::text
FROM it
