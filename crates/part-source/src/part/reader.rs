//! One read of a stream: steps of the script become events.

use std::cell::RefCell;

use rapidbyte_rows::{Encoded, Encoder, Refusal};

use crate::part::bindings::rapidbyte::connector::phase::{self, Kind};
use crate::part::contract::{Batch, Event, GuestReader};
use crate::part::script::{self, Step};
use crate::part::{Error, refused};

/// Steps without rows that one call passes over.
const MAX_EMPTY_STEPS: usize = 1000;

/// One read of a stream.
pub struct Reader {
    script: script::Reader,
    stream: String,
    state: RefCell<State>,
}

struct State {
    encoder: Encoder,
    ended: bool,
}

impl Reader {
    pub fn new(script: script::Reader, stream: String, encoder: Encoder) -> Self {
        let ended = false;
        Self {
            script,
            stream,
            state: RefCell::new(State { encoder, ended }),
        }
    }
}

impl GuestReader for Reader {
    fn schema(&self) -> Vec<u8> {
        self.state.borrow().encoder.schema_message().to_vec()
    }

    fn next(&self, wait_ms: u32) -> Result<Event, Error> {
        let state = &mut *self.state.borrow_mut();
        for _ in 0..MAX_EMPTY_STEPS {
            if state.ended {
                return Ok(Event::End);
            }
            phase::enter(Kind::Decode);
            let event = state.event(self.script.next(wait_ms)?);
            if let Some(event) = event.map_err(|refusal| refused(refusal, &self.stream))? {
                return Ok(event);
            }
        }
        Ok(Event::Idle)
    }
}

impl State {
    /// The event that a step is; none of a batch without rows.
    fn event(&mut self, step: Step) -> Result<Option<Event>, Refusal> {
        phase::enter(Kind::ArrowEncode);
        let encoder = &mut self.encoder;
        let encoded = match step {
            Step::Rows(lines) => encoder.rows(&lines),
            Step::RowsText(lines) => encoder.rows(lines.as_bytes()),
            Step::Columns(columns) => encoder.columns(&columns),
            Step::ColumnsText(columns) => encoder.columns(&columns),
            Step::Checkpoint(cursor) => return Ok(Some(Event::Checkpoint(cursor))),
            Step::Idle => return Ok(Some(Event::Idle)),
            Step::End => {
                self.ended = true;
                return Ok(Some(Event::End));
            }
        };
        Ok(encoded?.map(|Encoded { data, rows }| Event::Batch(Batch { data, rows })))
    }
}
