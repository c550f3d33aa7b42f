//! Types that no type of Arrow is like: they travel in their native form, or as the server's text.

use super::{Family, Modifier, Type};
use crate::builtin::*;
use crate::cast::Spelling;

pub(super) static FAMILY: Family = Family {
    types: &[
        Type {
            of: &[BIT],
            held: None,
            modifier: Some(Modifier {
                fits: |_, _| Err("the lengths differ"),
                by_value: false,
            }),
            spelling: Spelling::Any,
        },
        Type {
            of: &[VARBIT],
            held: None,
            modifier: Some(Modifier {
                fits: |from, to| match from < 0 || from > to {
                    true => Err("fewer bits"),
                    false => Ok(()),
                },
                by_value: false,
            }),
            spelling: Spelling::Any,
        },
        Type {
            of: &[PG_LSN],
            held: None,
            modifier: None,
            spelling: Spelling::Any,
        }, // The server reads `1::.2` and `8:0:2b:1:2:3` too, as best it can.
        // So it does with fewer than four octets behind a colon.
        Type {
            of: &[INET],
            held: None,
            modifier: None,
            spelling: Spelling::Also(|text, _| format!(r"{text} !~ '{SHORT_OCTETS}'")),
        }, // It completes an address that has neither a mask nor four octets by the mask of its class.
        Type {
            of: &[CIDR],
            held: None,
            modifier: None,
            spelling: Spelling::Also(|text, _| {
                format!(r"({text} !~ '{SHORT_OCTETS}' AND {text} ~ '/|:|^\s*(\d+\.){{3}}\d+\s*$')")
            }),
        },
        Type {
            of: &[MACADDR],
            held: None,
            modifier: None,
            spelling: Spelling::Pattern(|| "[0-9a-f]{2}([:.-]?[0-9a-f]{2}){5}".into()),
        },
        Type {
            of: &[MACADDR8],
            held: None,
            modifier: None,
            spelling: Spelling::Pattern(|| "[0-9a-f]{2}([:.-]?[0-9a-f]{2}){7}".into()),
        },
        Type {
            of: &[POINT, LSEG, PATH, BOX, POLYGON, LINE, CIRCLE],
            held: None,
            modifier: None,
            spelling: Spelling::Also(|text, value| {
                format!(
                    r"{value}::pg_catalog.text = pg_catalog.regexp_replace({text}, '\s', '', 'g')"
                )
            }),
        },
    ],
    column: |_| None,
    into: |_, _, _, _| None,
    encode: |_| None,
};

/// Of an address with colons: two or three octets at its end, or none before a point.
const SHORT_OCTETS: &str = r":\.|:\d*(\.\d*){1,2}(/|\s*$)";
