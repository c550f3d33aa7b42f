//! Types that no type of Arrow is like: they travel in their native form, or as the server's text.

use super::family::{Family, Spelling, by_text};
use crate::builtin::*;

pub(super) static FAMILY: Family = Family {
    types: types! {
        [BIT] None, by_text(|_, _| Err("the lengths differ")), Spelling::Any;
        [VARBIT] None, by_text(fewer_bits), Spelling::Any;
        [PG_LSN] None, None, Spelling::Any;
        // The server reads `1::.2` and `8:0:2b:1:2:3` too, as best it can.
        // So it does with fewer than four octets behind a colon.
        [INET] None, None, Spelling::Also(|text, _| format!(r"{text} !~ '{SHORT_OCTETS}'"));
        // It completes an address that has neither a mask nor four octets by the mask of its class.
        [CIDR] None, None, Spelling::Also(|text, _| {
            format!(r"({text} !~ '{SHORT_OCTETS}' AND {text} ~ '/|:|^\s*(\d+\.){{3}}\d+\s*$')")
        });
        [MACADDR] None, None, Spelling::Pattern(|| "[0-9a-f]{2}([:.-]?[0-9a-f]{2}){5}".into());
        [MACADDR8] None, None, Spelling::Pattern(|| "[0-9a-f]{2}([:.-]?[0-9a-f]{2}){7}".into());
        [POINT, LSEG, PATH, BOX, POLYGON, LINE, CIRCLE] None, None, Spelling::Also(|text, value| {
            format!(r"{value}::pg_catalog.text = pg_catalog.regexp_replace({text}, '\s', '', 'g')")
        });
    },
    column: |_| None,
    into: |_, _, _, _| None,
    encode: |_| None,
};

fn fewer_bits(from: i32, to: i32) -> Result<(), &'static str> {
    match from < 0 || from > to {
        true => Err("fewer bits"),
        false => Ok(()),
    }
}

/// Of an address with colons: two or three octets at its end, or none before a point.
const SHORT_OCTETS: &str = r":\.|:\d*(\.\d*){1,2}(/|\s*$)";
