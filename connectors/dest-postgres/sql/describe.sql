-- Every property of a table by names, one row each: a property of the old table that the new
-- one lacks makes a difference here, also one that a later version of the server brings. Left out is
-- only what differs between two tables that are alike: numbers, places in files, counts, and the
-- dimensions that the server notes of an array column and does not use.
WITH class AS (
    SELECT c.oid, c.relowner, c.reltoastrelid, c.reltype, c.relacl,
        to_jsonb(c) - '{oid,reltype,relfilenode,relpages,reltuples,relallvisible,relallfrozen,reltoastrelid,relfrozenxid,relminmxid,relnatts,relhasindex,relhasrules,relhastriggers,relhassubclass,relacl}'::text[] AS about
    FROM pg_catalog.pg_class c
    -- The table, its indexes and its sequences: a catalog may have very many others.
    WHERE c.oid = ANY (ARRAY(SELECT $OID::oid
        UNION ALL SELECT i.indexrelid FROM pg_catalog.pg_index i WHERE i.indrelid = $OID
        UNION ALL SELECT d.objid FROM pg_catalog.pg_depend d WHERE d.refclassid = 'pg_catalog.pg_class'::regclass
            AND d.refobjid = $OID AND d.classid = 'pg_catalog.pg_class'::regclass))),
it AS (SELECT * FROM class WHERE class.oid = $OID)
SELECT 'the table itself' AS what, (it.about || jsonb_build_object(
    'grants', (SELECT jsonb_agg(to_jsonb(e) ORDER BY to_jsonb(e))
        FROM aclexplode(coalesce(it.relacl, acldefault('r', it.relowner))) e),
    'toast', (SELECT t.reloptions FROM pg_catalog.pg_class t WHERE t.oid = it.reltoastrelid),
    'type', (SELECT t.typacl FROM pg_catalog.pg_type t WHERE t.oid = it.reltype),
    'comment of its type', obj_description(it.reltype, 'pg_type'),
    'comment', obj_description(it.oid, 'pg_class')))::text AS about
FROM it
UNION ALL
SELECT format('the column %I', a.attname),
    (to_jsonb(a) - '{attrelid,attnum,attndims,attcacheoff,atthasmissing,attmissingval,attacl}'::text[]
     || jsonb_build_object(
        'place', row_number() OVER (ORDER BY a.attnum),
        'default', (SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_catalog.pg_attrdef d
            WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum),
        'grants', (SELECT jsonb_agg(to_jsonb(e) ORDER BY to_jsonb(e)) FROM aclexplode(a.attacl) e),
        'comment', col_description(a.attrelid, a.attnum)))::text
FROM pg_catalog.pg_attribute a, it WHERE a.attrelid = it.oid AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT format('the constraint %I', k.conname),
    (to_jsonb(k) - '{oid,conrelid,conindid,conkey,conbin,confkey}'::text[] || jsonb_build_object(
        'definition', pg_get_constraintdef(k.oid),
        'comment', obj_description(k.oid, 'pg_constraint')))::text
FROM pg_catalog.pg_constraint k, it WHERE k.conrelid = it.oid
UNION ALL
SELECT format('the index %s', i.indexrelid::regclass),
    (to_jsonb(i) - '{indexrelid,indrelid,indkey,indexprs,indpred,indcheckxmin}'::text[] || x.about
     || jsonb_build_object(
        'definition', pg_get_indexdef(i.indexrelid),
        'columns', (SELECT jsonb_agg(jsonb_build_array(a.attstattarget, a.attoptions) ORDER BY a.attnum)
            FROM pg_catalog.pg_attribute a WHERE a.attrelid = i.indexrelid AND a.attnum > 0),
        'comment', obj_description(i.indexrelid, 'pg_class')))::text
FROM pg_catalog.pg_index i, it, class x WHERE i.indrelid = it.oid AND x.oid = i.indexrelid
UNION ALL
SELECT format('the trigger %I', g.tgname),
    (to_jsonb(g) - '{oid,tgrelid,tgattr,tgqual,tgconstraint,tgconstrindid}'::text[]
     || jsonb_build_object(
        'definition', pg_get_triggerdef(g.oid),
        'comment', obj_description(g.oid, 'pg_trigger')))::text
FROM pg_catalog.pg_trigger g, it WHERE g.tgrelid = it.oid AND NOT g.tgisinternal
UNION ALL
SELECT 'the triggers of its constraints',
    jsonb_agg(jsonb_build_array(g.tgfoid, g.tgtype, g.tgenabled) ORDER BY g.tgfoid, g.tgtype, g.tgenabled)::text
FROM pg_catalog.pg_trigger g, it WHERE g.tgrelid = it.oid AND g.tgisinternal
UNION ALL
SELECT format('the policy %I', p.polname),
    (to_jsonb(p) - '{oid,polrelid,polqual,polwithcheck}'::text[] || jsonb_build_object(
        'using', pg_get_expr(p.polqual, p.polrelid),
        'check', pg_get_expr(p.polwithcheck, p.polrelid),
        'comment', obj_description(p.oid, 'pg_policy')))::text
FROM pg_catalog.pg_policy p, it WHERE p.polrelid = it.oid
UNION ALL
SELECT format('the rule %I', r.rulename), pg_get_ruledef(r.oid)
FROM pg_catalog.pg_rewrite r, it WHERE r.ev_class = it.oid
UNION ALL
SELECT format('the statistics %I', s.stxname),
    (to_jsonb(s) - '{oid,stxrelid,stxkeys,stxexprs}'::text[] || jsonb_build_object(
        'definition', pg_get_statisticsobjdef(s.oid),
        'comment', obj_description(s.oid, 'pg_statistic_ext')))::text
FROM pg_catalog.pg_statistic_ext s, it WHERE s.stxrelid = it.oid
UNION ALL
SELECT format('the sequence %s', x.oid::regclass),
    (x.about || to_jsonb(q) - '{seqrelid}'::text[] || jsonb_build_object(
        'column', a.attname, 'kind', d.deptype,
        'grants', (SELECT jsonb_agg(to_jsonb(e) ORDER BY to_jsonb(e))
            FROM aclexplode(coalesce(x.relacl, acldefault('s', x.relowner))) e),
        'comment', obj_description(x.oid, 'pg_class')))::text
FROM it JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_class'::regclass
        AND d.refobjid = it.oid AND d.classid = 'pg_catalog.pg_class'::regclass AND d.deptype IN ('a', 'i')
    JOIN pg_catalog.pg_sequence q ON q.seqrelid = d.objid
    JOIN class x ON x.oid = q.seqrelid
    JOIN pg_catalog.pg_attribute a ON a.attrelid = it.oid AND a.attnum = d.refobjsubid
UNION ALL
SELECT format('the publication %I', b.pubname), (to_jsonb(r) - '{oid,prrelid,prattrs,prqual}'::text[])::text
FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication b ON b.oid = r.prpubid, it
WHERE r.prrelid = it.oid
UNION ALL
SELECT 'the security labels', jsonb_agg(to_jsonb(l) - 'objoid' ORDER BY l.provider, l.objsubid)::text
FROM pg_catalog.pg_seclabel l, it WHERE l.objoid = it.oid AND l.classoid = 'pg_catalog.pg_class'::regclass
UNION ALL
SELECT 'inheritance', jsonb_agg(jsonb_build_array(h.inhrelid = it.oid, h.inhseqno) ORDER BY h.inhseqno)::text
FROM pg_catalog.pg_inherits h, it WHERE it.oid IN (h.inhrelid, h.inhparent)
ORDER BY 1, 2
