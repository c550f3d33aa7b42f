//! The lists of the contract, for a connector that reads or loads one stream at a time.
//!
//! Its spec says so, and then the host gives lists of one item. Anything else is a fault of the host.

/// The one item of a list. `flag` is the field of the spec that allows more.
pub fn only<T, L>(list: L, flag: &str) -> Result<T, String>
where
    L: IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
{
    let mut items = list.into_iter();
    let count = items.len();
    match (items.next(), count) {
        (Some(item), 1) => Ok(item),
        _ => Err(refused(&crate::counted(count, "stream"), flag)),
    }
}

/// Refuses the number of any other stream than the one of the list.
pub fn ensure_only(stream: u32, flag: &str) -> Result<(), String> {
    match stream {
        0 => Ok(()),
        _ => Err(refused(&format!("the stream number {stream}"), flag)),
    }
}

fn refused(what: &str, flag: &str) -> String {
    format!("{what} in one call, but `{flag}` of the connector is false")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_one_stream_without_the_flag() {
        assert_eq!(only(["a"], "reads-together"), Ok("a"));
        assert_eq!(ensure_only(0, "reads-together"), Ok(()));
        let refused = |what| {
            let text =
                format!("{what} in one call, but `commits-together` of the connector is false");
            Err(text)
        };
        assert_eq!(only([""; 0], "commits-together"), refused("0 streams"));
        assert_eq!(only(["a", "b"], "commits-together"), refused("2 streams"));
        let second = ensure_only(1, "commits-together");
        assert_eq!(second.map(|()| ""), refused("the stream number 1"));
    }
}
