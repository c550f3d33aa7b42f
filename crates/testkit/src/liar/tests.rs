//! The liar lies where it should and nowhere else.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use super::*;
use crate::postgres::shared;

fn ask(liar: &Liar) -> Result<String, postgres::Error> {
    let url = shared().url_at(liar.port(), "postgres");
    let mut client = postgres::Client::connect(&url, postgres::NoTls)?;
    client.batch_execute("SELECT 'nothing'")?;
    let row = client.query_one("SELECT 'the truth'", &[])?;
    Ok(row.get(0))
}

fn lie(says: Says, is_once: bool) -> Lie {
    Lie {
        after: "the truth",
        at: b'D',
        nth: 1,
        says,
        is_once,
    }
}

#[test]
fn a_message_is_changed_where_it_was_asked_for() {
    let changed = Says::Changed(|message| [&message[..message.len() - 9], b"the_lie!!"].concat());
    let liar = Liar::in_front_of(shared().port(), lie(changed, true)).unwrap();
    assert_eq!(ask(&liar).unwrap(), "the_lie!!");
    assert_eq!(ask(&liar).unwrap(), "the truth");
    assert_eq!(liar.lies_told(), 1);
}

#[test]
fn an_end_and_a_flood_are_for_every_connection() {
    for says in [Says::Close(Vec::new()), Says::ForEver(message(b'?', b"x"))] {
        let liar = Liar::in_front_of(shared().port(), lie(says, false)).unwrap();
        assert!(ask(&liar).is_err() && ask(&liar).is_err());
        assert_eq!(liar.lies_told(), 2);
    }
}

#[test]
fn a_nonce_is_given_back_under_its_own_length() {
    let line = message(b'R', b"r={nonce}xyz,i=1");
    let expected = message(b'R', b"r=abcxyz,i=1");
    assert_eq!(talk::with_nonce(&line, b"n,,n=,r=abc"), expected);
}
