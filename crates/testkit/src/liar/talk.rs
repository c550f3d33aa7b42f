//! One connection through a liar: a thread for what the client says, one for what it hears.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Says, Talk, Told, flood};

/// Read at a time.
const CHUNK_BYTES: usize = 32 << 10;
/// The last bytes that the client sent: more than any lie waits for.
const KEPT_BYTES: usize = 256 << 10;
/// Tag and length.
const HEAD_BYTES: usize = 5;
/// How long a dialogue waits for the client.
const PATIENCE: Duration = Duration::from_secs(10);

/// The text that the client has sent.
#[derive(Default)]
struct Said {
    text: Vec<u8>,
    /// Pieces so far.
    pieces: usize,
    has_ended: bool,
}

struct Heard {
    said: Mutex<Said>,
    changed: Condvar,
}

impl Talk for Told {
    fn talk(self: &Arc<Self>, client: &TcpStream, server: &TcpStream) -> io::Result<()> {
        let heard = Arc::new(Heard {
            said: Mutex::default(),
            changed: Condvar::new(),
        });
        let (from, to, hears) = (client.try_clone()?, server.try_clone()?, Arc::clone(&heard));
        std::thread::spawn(move || {
            // However it ends, the server hears of it.
            let _ = hears.pass_on(&from, &to);
            let _ = to.shutdown(Shutdown::Both);
            hears.end();
        });
        tell(self, &heard, server, client)
    }
}

impl Heard {
    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass_on(&self, mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let len = from.read(&mut chunk)?;
            if len == 0 {
                return Ok(());
            }
            let mut said = self.said();
            said.text.extend_from_slice(&chunk[..len]);
            let cut = said.text.len().saturating_sub(KEPT_BYTES);
            said.text.drain(..cut);
            said.pieces += 1;
            drop(said);
            self.changed.notify_all();
            to.write_all(&chunk[..len])?;
        }
    }

    fn end(&self) {
        self.said().has_ended = true;
        self.changed.notify_all();
    }

    fn has_said(&self, text: &str) -> bool {
        let said = self.said();
        text.is_empty()
            || said
                .text
                .windows(text.len())
                .any(|part| part == text.as_bytes())
    }

    /// Waits until the client has sent more than `pieces` pieces, and gives the text.
    fn next(&self, pieces: usize) -> Option<Vec<u8>> {
        let waits = |said: &mut Said| said.pieces <= pieces && !said.has_ended;
        let waited = self
            .changed
            .wait_timeout_while(self.said(), PATIENCE, waits);
        let (said, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (said.pieces > pieces).then(|| said.text.clone())
    }

    /// Waits for the end of the client, which waits for us.
    fn wait_for_the_end(&self) {
        let said = self.said();
        let waited = self.changed.wait_while(said, |said| !said.has_ended);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Passes whole messages on to the client, but one.
fn tell(
    told: &Told,
    heard: &Heard,
    mut server: &TcpStream,
    mut client: &TcpStream,
) -> io::Result<()> {
    let lie = &told.lie;
    let (mut input, mut chunk) = (Vec::new(), vec![0; CHUNK_BYTES]);
    let (mut seen, mut has_lied) = (0, false);
    loop {
        while let Some(len) = whole(&input) {
            let message: Vec<u8> = input.drain(..len).collect();
            let is_it =
                !has_lied && (lie.at == 0 || lie.at == message[0]) && heard.has_said(lie.after);
            seen += usize::from(is_it);
            if !is_it || seen < lie.nth || !told.may_lie() {
                client.write_all(&message)?;
                continue;
            }
            has_lied = true;
            if !say(&lie.says, heard, &message, client)? {
                return Ok(());
            }
        }
        let len = server.read(&mut chunk)?;
        if len == 0 {
            return client.write_all(&input);
        }
        input.extend_from_slice(&chunk[..len]);
    }
}

/// The length of the first message, as soon as all of it has come.
fn whole(input: &[u8]) -> Option<usize> {
    let [_, a, b, c, d, ..] = *input else {
        return None;
    };
    let len = 1 + u32::from_be_bytes([a, b, c, d]) as usize;
    (len >= HEAD_BYTES && input.len() >= len).then_some(len)
}

/// Tells a lie; false if the connection ends with it.
fn say(says: &Says, heard: &Heard, message: &[u8], mut client: &TcpStream) -> io::Result<bool> {
    match says {
        Says::Instead(bytes) => client.write_all(bytes)?,
        Says::Before(bytes) => {
            client.write_all(bytes)?;
            client.write_all(message)?;
        }
        Says::Changed(change) => client.write_all(&change(message))?,
        Says::Close(bytes) => {
            client.write_all(bytes)?;
            return Ok(false);
        }
        Says::Silence(bytes) => {
            client.write_all(bytes)?;
            heard.wait_for_the_end();
            return Ok(false);
        }
        Says::ForEver(bytes) => {
            flood(client, bytes)?;
            return Ok(false);
        }
        Says::Dialogue(lines) => {
            converse(lines, heard, client)?;
            heard.wait_for_the_end();
            return Ok(false);
        }
    }
    Ok(true)
}

fn converse(lines: &[Vec<u8>], heard: &Heard, mut client: &TcpStream) -> io::Result<()> {
    let mut said = Vec::new();
    for line in lines {
        let pieces = heard.said().pieces;
        client.write_all(&with_nonce(line, &said))?;
        let Some(next) = heard.next(pieces) else {
            return Ok(());
        };
        said = next;
    }
    Ok(())
}

/// A message with the client's nonce in the place of `{nonce}`, and the length that follows.
pub(super) fn with_nonce(line: &[u8], said: &[u8]) -> Vec<u8> {
    const PLACE: &[u8] = b"{nonce}";
    let Some(at) = line.windows(PLACE.len()).position(|part| part == PLACE) else {
        return line.to_vec();
    };
    let from = said
        .windows(2)
        .rposition(|part| part == b"r=")
        .map_or(said.len(), |at| at + 2);
    let nonce = said[from..]
        .split(|byte| *byte == b',')
        .next()
        .unwrap_or_default();
    let body = [&line[HEAD_BYTES..at], nonce, &line[at + PLACE.len()..]].concat();
    super::message(line[0], &body)
}
