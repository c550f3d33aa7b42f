//! The types that every PostgreSQL server has under the same OID (`pg_type.dat`).

/// One built-in type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Builtin {
    /// Its OID.
    pub oid: u32,
    /// The OID of its array type.
    pub array: u32,
    /// Its name in the catalog.
    pub name: &'static str,
    /// Its name in SQL.
    pub sql: &'static str,
    /// Bytes of its binary form, where that is the same for every value.
    pub length: Option<i32>,
}

const fn builtin(
    oid: u32,
    array: u32,
    name: &'static str,
    sql: &'static str,
    length: i32,
) -> Builtin {
    let length = if length > 0 { Some(length) } else { None };
    Builtin {
        oid,
        array,
        name,
        sql,
        length,
    }
}

macro_rules! builtins {
    ($($id:ident = $oid:literal, $array:literal, $name:literal, $sql:literal, $length:literal;)*) => {
        $(#[doc = concat!("`", $sql, "`")]
        pub const $id: Builtin = builtin($oid, $array, $name, $sql, $length);)*
        /// All of them, ordered by OID.
        pub const ALL: &[Builtin] = &[$($id),*];
    };
}

builtins! {
    BOOL = 16, 1000, "bool", "boolean", 1;
    BYTEA = 17, 1001, "bytea", "bytea", 0;
    CHAR = 18, 1002, "char", "\"char\"", 1;
    NAME = 19, 1003, "name", "name", 0;
    INT8 = 20, 1016, "int8", "bigint", 8;
    INT2 = 21, 1005, "int2", "smallint", 2;
    INT4 = 23, 1007, "int4", "integer", 4;
    TEXT = 25, 1009, "text", "text", 0;
    OID = 26, 1028, "oid", "oid", 4;
    TID = 27, 1010, "tid", "tid", 6;
    XID = 28, 1011, "xid", "xid", 4;
    CID = 29, 1012, "cid", "cid", 4;
    JSON = 114, 199, "json", "json", 0;
    XML = 142, 143, "xml", "xml", 0;
    POINT = 600, 1017, "point", "point", 16;
    LSEG = 601, 1018, "lseg", "lseg", 32;
    PATH = 602, 1019, "path", "path", 0;
    BOX = 603, 1020, "box", "box", 32;
    POLYGON = 604, 1027, "polygon", "polygon", 0;
    LINE = 628, 629, "line", "line", 24;
    CIDR = 650, 651, "cidr", "cidr", 0;
    FLOAT4 = 700, 1021, "float4", "real", 4;
    FLOAT8 = 701, 1022, "float8", "double precision", 8;
    CIRCLE = 718, 719, "circle", "circle", 24;
    MACADDR8 = 774, 775, "macaddr8", "macaddr8", 8;
    MONEY = 790, 791, "money", "money", 8;
    MACADDR = 829, 1040, "macaddr", "macaddr", 6;
    INET = 869, 1041, "inet", "inet", 0;
    BPCHAR = 1042, 1014, "bpchar", "character", 0;
    VARCHAR = 1043, 1015, "varchar", "character varying", 0;
    DATE = 1082, 1182, "date", "date", 4;
    TIME = 1083, 1183, "time", "time without time zone", 8;
    TIMESTAMP = 1114, 1115, "timestamp", "timestamp without time zone", 8;
    TIMESTAMPTZ = 1184, 1185, "timestamptz", "timestamp with time zone", 8;
    INTERVAL = 1186, 1187, "interval", "interval", 16;
    TIMETZ = 1266, 1270, "timetz", "time with time zone", 12;
    BIT = 1560, 1561, "bit", "bit", 0;
    VARBIT = 1562, 1563, "varbit", "bit varying", 0;
    NUMERIC = 1700, 1231, "numeric", "numeric", 0;
    UUID = 2950, 2951, "uuid", "uuid", 16;
    PG_LSN = 3220, 3221, "pg_lsn", "pg_lsn", 8;
    TSVECTOR = 3614, 3643, "tsvector", "tsvector", 0;
    TSQUERY = 3615, 3645, "tsquery", "tsquery", 0;
    JSONB = 3802, 3807, "jsonb", "jsonb", 0;
    JSONPATH = 4072, 4073, "jsonpath", "jsonpath", 0;
    XID8 = 5069, 271, "xid8", "xid8", 8;
}

/// `regproc`, `regprocedure`, `regoper`, `regoperator`, `regclass`, `regtype`, `regconfig`,
/// `regdictionary`, `regnamespace`, `regrole`, `regcollation`.
const REG: [u32; 11] = [
    24, 2202, 2203, 2204, 2205, 2206, 3734, 3769, 4089, 4096, 4191,
];

/// `pg_node_tree`, `pg_ndistinct`, `gtsvector`, `pg_dependencies`, `pg_brin_bloom_summary`,
/// `pg_brin_minmax_multi_summary`, `pg_mcv_list`: their input and receive functions raise errors.
const NO_INPUT: [u32; 7] = [194, 3361, 3642, 3402, 4600, 4601, 5017];

/// True for the types whose values only the server itself makes.
pub fn has_no_input(oid: u32) -> bool {
    NO_INPUT.contains(&oid)
}

/// True for the types whose values name an object of one server by its OID.
pub fn is_reg(oid: u32) -> bool {
    REG.contains(&oid)
}

/// `int2vector`, `oidvector`, `tsquery`: their receive functions refuse the empty values that their
/// send functions send.
const REFUSE_EMPTY: [u32; 3] = [22, 30, TSQUERY.oid];

/// True for the types with values that cannot be received in binary.
pub fn refuses_empty(oid: u32) -> bool {
    REFUSE_EMPTY.contains(&oid)
}

/// The built-in type of an OID, if it is in the table.
pub fn by_oid(oid: u32) -> Option<&'static Builtin> {
    ALL.binary_search_by_key(&oid, |builtin| builtin.oid)
        .ok()
        .map(|at| &ALL[at])
}

/// Precision and scale of a `numeric` with this modifier; none for a `numeric` without.
pub fn numeric_typmod(typmod: i32) -> Option<(u16, i16)> {
    let packed = typmod.checked_sub(4).filter(|packed| *packed >= 0)?;
    let precision = (packed >> 16) as u16;
    // Eleven bits with a sign since PostgreSQL 15; before that never above 1000.
    let scale = (((packed & 0x7ff) ^ 1024) - 1024) as i16;
    Some((precision, scale))
}

/// The modifier of `numeric(precision, scale)`.
pub fn to_numeric_typmod(precision: u16, scale: i16) -> i32 {
    ((i32::from(precision) << 16) | (i32::from(scale) & 0x7ff)) + 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_ordered_and_modifiers_come_back() {
        assert!(ALL.is_sorted_by_key(|builtin| builtin.oid));
        assert_eq!(by_oid(1700), Some(&NUMERIC));
        assert_eq!(by_oid(1), None);
        for (precision, scale) in [(18, 4), (1, 0), (1000, 1000), (5, -3), (1000, -1000)] {
            let typmod = to_numeric_typmod(precision, scale);
            assert_eq!(numeric_typmod(typmod), Some((precision, scale)));
        }
        assert_eq!(numeric_typmod(-1), None);
        assert_eq!(numeric_typmod(i32::MIN), None);
    }
}
