//! One read of a stream: steps of the script become events.

use std::cell::RefCell;
use std::rc::Rc;

use rapidbyte_rows::{Encoded, Encoder, Refusal, one};

use crate::part::bindings::rapidbyte::connector::phase::{self, Kind};
use crate::part::contract::{Batch, Event, GuestReader, Position};
use crate::part::script::{self, Step};
use crate::part::{Error, of_host, refused};

/// The field of the spec that allows several streams in a read.
pub const TOGETHER: &str = "reads-together";

/// Steps without rows that one call passes over.
const MAX_EMPTY_STEPS: usize = 1000;

/// One read of a stream.
pub struct Reader {
    script: script::Reader,
    /// It takes the acknowledgements.
    session: Rc<script::Session>,
    stream: String,
    state: RefCell<State>,
}

struct State {
    encoder: Encoder,
    ended: bool,
}

impl Reader {
    pub fn new(
        script: script::Reader,
        session: Rc<script::Session>,
        stream: String,
        encoder: Encoder,
    ) -> Self {
        let ended = false;
        Self {
            script,
            session,
            stream,
            state: RefCell::new(State { encoder, ended }),
        }
    }
}

impl GuestReader for Reader {
    fn schemas(&self) -> Vec<Vec<u8>> {
        vec![self.state.borrow().encoder.schema_message().to_vec()]
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

    fn acknowledge(&self, positions: Vec<Position>) -> Result<(), Error> {
        for Position { stream, cursor } in positions {
            of_host(one::ensure_only(stream, TOGETHER))?;
            self.session.acknowledge(&self.stream, &cursor)?;
        }
        Ok(())
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
            Step::Checkpoint(cursor) => {
                return Ok(Some(Event::Checkpoint(Position { stream: 0, cursor })));
            }
            Step::Idle => return Ok(Some(Event::Idle)),
            Step::End => {
                self.ended = true;
                return Ok(Some(Event::End));
            }
        };
        Ok(encoded?.map(|Encoded { data, rows }| Event::Batch((0, Batch { data, rows }))))
    }
}
