//! A server that may say anything at any time.

use std::sync::LazyLock;
use std::time::Duration;

use rapidbyte_pg::builtin;
use rapidbyte_pg::copy::Decoder;
use rapidbyte_pg_client::{Client, CopyRead, Format, Param, Settings};
use rapidbyte_sdk::connection::answer_with;
use rapidbyte_sdk::{Error, Result};

/// The server's messages before the first query.
pub const GREETING: &[u8] = b"R\0\0\0\x08\0\0\0\0S\0\0\0\x18server_version\x0015.1\0\
    K\0\0\0\x0c\0\0\0\x07\0\0\0\x09Z\0\0\0\x05I";
const WAIT: Duration = Duration::from_millis(1);
/// More than any input can make.
const MAX_STEPS: usize = 1 << 20;

static SETTINGS: LazyLock<Settings> = LazyLock::new(|| {
    Settings::from_url("postgres://u:p@localhost/d?sslmode=disable&connect_timeout=5")
        .expect("a good URL")
});

/// The input: a byte that chooses what the client does and whether the server greets well, one that
/// says how its bytes are cut, and its bytes. Every error has a code of known letters.
pub fn run(data: &[u8]) {
    let Err(error) = talk(data) else { return };
    check(&error);
}

/// The conversation of an input.
///
/// # Errors
/// The client's first.
pub fn talk(data: &[u8]) -> Result<()> {
    let mut data = data;
    let (choice, cut) = (crate::byte(&mut data), crate::piece(crate::byte(&mut data)));
    let mut bytes = Vec::new();
    if choice & 0x80 != 0 {
        bytes.extend_from_slice(GREETING);
    }
    bytes.extend_from_slice(data);
    answer_with(bytes, cut);
    speak(choice)
}

fn check(error: &Error) {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_code = match error.code.strip_prefix("pg_") {
        Some(state) => {
            let of_state = |c: char| c.is_ascii_digit() || c.is_ascii_uppercase();
            state.len() == 5 && state.chars().all(of_state)
        }
        None => !error.code.is_empty() && error.code.chars().all(is_word),
    };
    assert!(is_code, "{error:?}");
    assert!(error.message.len() < 64 << 10, "{}", error.message.len());
}

fn speak(choice: u8) -> Result<()> {
    let mut client = Client::connect(&SETTINGS)?;
    client.set_max_result_bytes(1 << 16);
    let _ = (client.server_version(), client.is_pgbouncer());
    match choice & 7 {
        0 => {
            for answer in client.simple_query("SELECT 1")? {
                for row in &answer.rows {
                    for column in 0..row.len() + 1 {
                        let _ = row.text(column);
                    }
                }
                let _ = answer.single();
            }
            client.execute("COMMIT")?;
        }
        1 => {
            let param = Param::text(Some("x"));
            client.query("SELECT $1", &[param], Format::Binary)?;
        }
        2 => {
            let statement = client.prepare("INSERT …", &[])?;
            let params: Vec<_> = statement
                .param_oids
                .iter()
                .map(|oid| Param::binary(*oid, None))
                .collect();
            client.execute_prepared(&statement, &params)?;
            let mut pipeline = client.pipeline()?;
            for _ in 0..100 {
                pipeline.execute(&statement, &params)?;
            }
            pipeline.finish()?;
            client.forget(statement)?;
        }
        3..=5 => copy_out(&mut client)?,
        6 => {
            let mut copy = client.copy_in("COPY t FROM STDIN")?;
            for _ in 0..100 {
                copy.send(&[7; 100])?;
            }
            copy.finish()?;
        }
        _ => {
            let mut copy = client.copy_in("COPY t FROM STDIN")?;
            copy.send_framed(&mut [0; 1000])?;
            copy.fail("enough")?;
        }
    }
    client.execute("SELECT 2")?;
    client.close();
    Ok(())
}

fn copy_out(client: &mut Client) -> Result<()> {
    let mut copy = client.copy_out("COPY t TO STDOUT (FORMAT binary)")?;
    let columns = [builtin::INT4.column("a"), builtin::TEXT.column("b")];
    let mut decoder = Decoder::new(&columns, false, 1 << 16);
    for _ in 0..MAX_STEPS {
        let fed = copy.feed(WAIT, |bytes| {
            let taken = decoder.push_messages(bytes);
            taken.map_err(|error| Error::data("copy_malformed", error.to_string()))
        })?;
        if fed == CopyRead::End {
            let _ = decoder.finish();
            let _ = decoder.take_batch();
            return Ok(());
        }
    }
    panic!("the copy has no end");
}
