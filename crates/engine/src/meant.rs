//! Which known name a mistyped one stands for.

/// Names in one suggestion.
const MOST: usize = 3;

/// A question for a hint: `did you mean "public.orders"?`. `None` where no name is really near.
///
/// A name in another case comes first, then names whose last part was given (`orders` for
/// `public.orders`, `postgres` for `source-postgres`), then a slip of the finger.
pub fn did_you_mean<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.dedup();
    let lower = wrong.to_lowercase();
    let of = |is: &dyn Fn(&str) -> bool| {
        let found: Vec<&str> = names.iter().copied().filter(|name| is(name)).collect();
        (1..=MOST).contains(&found.len()).then_some(found)
    };
    let found = of(&|name| name.to_lowercase() == lower)
        .or_else(|| of(&|name| is_last_part(&name.to_lowercase(), &lower)))
        .or_else(|| nearest(wrong, names.iter().copied()).map(|name| vec![name]))?;
    let found: Vec<String> = found.iter().map(|name| format!("{name:?}")).collect();
    Some(format!("did you mean {}?", found.join(" or ")))
}

/// The first of these names, and how many more there are.
pub(crate) fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 8;
    match names.len() {
        0 => "no streams".into(),
        n if n > SHOWN => format!("{} and {} more", names[..SHOWN].join(", "), n - SHOWN),
        _ => names.join(", "),
    }
}

fn is_last_part(name: &str, part: &str) -> bool {
    let before = name.strip_suffix(part);
    !part.is_empty() && before.is_some_and(|before| before.ends_with(['.', '-']))
}

/// The name that is nearest to a mistyped one, if it is near: one slip in a short word, three in a
/// long one. Case does not count.
pub fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = wrong.to_lowercase();
    let slips = match lower.chars().count() {
        0..=2 => 0,
        3..=5 => 1,
        6..=11 => 2,
        _ => 3,
    };
    names
        // Comparing takes memory for each letter of one times each of the other.
        .filter(|name| name.len() <= 4 * wrong.len() + 8)
        .map(|name| {
            (
                strsim::damerau_levenshtein(&lower, &name.to_lowercase()),
                name,
            )
        })
        .filter(|(distance, _)| *distance <= slips)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 8] = [
        "public.customers",
        "public.Orders",
        "sales.orders",
        "id",
        "source-postgres",
        "dest-postgres",
        "dest-file",
        "read",
    ];

    #[test]
    fn only_names_that_are_really_near_are_suggested() {
        for (wrong, expected) in [
            ("customers", Some("\"public.customers\"")),
            ("CUSTOMERS", Some("\"public.customers\"")),
            ("PUBLIC.Customers", Some("\"public.customers\"")),
            ("public.orders", Some("\"public.Orders\"")),
            ("orders", Some("\"public.Orders\" or \"sales.orders\"")),
            ("postgres", Some("\"dest-postgres\" or \"source-postgres\"")),
            ("public.custmers", Some("\"public.customers\"")),
            ("reda", Some("\"read\"")),
            ("ID", Some("\"id\"")),
            ("ip", None),
            ("heap", None),
            ("dest-mysql", None),
            ("", None),
        ] {
            let hint = did_you_mean(wrong, NAMES.into_iter());
            let expected = expected.map(|names| format!("did you mean {names}?"));
            assert_eq!(hint, expected, "{wrong}");
        }
    }
}
