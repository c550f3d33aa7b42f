//! The stage between two channels.

use rapidbyte_runtime::{Batch, Cancel, Clock, Phase, RejectOrigin, Transform};

use super::{
    Message, Stopped, Work, compress_failed, decompress_failed, has_same_columns, message_bytes,
};
use crate::channel::{Received, Receiver, Sender};
use crate::compress::{Compressor, Decompressor};
use crate::failure::{Class, Failure};
use crate::plan::{self, Step};

/// Transforms every batch until the end and passes the checkpoints on. An early return drops the sender, which aborts
/// the stage behind. `steps` has the step of each stream, or `None` for a stream with fewer transforms, whose rows pass
/// through.
pub(crate) fn pump_transform(
    work: &Work<'_>,
    steps: &[Option<&Step>],
    (mut receiver, mut sender): (Receiver<Message>, Sender<Message>),
    clock: &Clock,
    cancel: &Cancel,
) -> Result<(), Stopped> {
    let mut transforms = Vec::new();
    for step in steps {
        let begun = step.map(|step| Transforming::begin(work, step, clock, cancel));
        transforms.push(begun.transpose()?);
    }
    let compression = work.plan.document.resources.compression;
    let mut compressor = Compressor::new(compression).map_err(compress_failed)?;
    let mut decompressor = Decompressor::new(work.batch_limit());
    let mut send = |message: Message| {
        let bytes = message_bytes(&message);
        let before = clock.enter(Phase::ChannelWait);
        let sent = sender.send(message, bytes);
        clock.enter(before);
        sent.map_err(|_| Stopped::Peer)
    };
    loop {
        let before = clock.enter(Phase::ChannelWait);
        let received = receiver.recv();
        clock.enter(before);
        match received {
            Received::Item(Message::Batch {
                member,
                frame,
                rows,
            }) => {
                let Some(transforming) = &mut transforms[member] else {
                    send(Message::Batch {
                        member,
                        frame,
                        rows,
                    })?;
                    continue;
                };
                if rows == 0 {
                    continue;
                }
                let before = clock.enter(Phase::Decompress);
                let data = decompressor.decompress(frame);
                clock.enter(before);
                let data = data.map_err(decompress_failed)?;
                work.point("engine.transform")?;
                let Transforming {
                    step,
                    session,
                    keeps_rejects,
                } = transforming;
                let failed = |e| failed(work, step, e);
                session.put(&Batch { data, rows }).map_err(failed)?;
                while let Some(Batch { data, rows }) = session.next().map_err(failed)? {
                    let before = clock.enter(Phase::Compress);
                    let frame = compressor.compress(data);
                    clock.enter(before);
                    let frame = frame.map_err(compress_failed)?;
                    send(Message::Batch {
                        member,
                        frame,
                        rows,
                    })?;
                }
                if *keeps_rejects {
                    loop {
                        let rejects = session.rejects().map_err(failed)?;
                        if rejects.is_empty() {
                            break;
                        }
                        send(Message::Rejects {
                            member,
                            origin: RejectOrigin::Transform,
                            rejects,
                        })?;
                    }
                }
            }
            Received::Item(other) => send(other)?,
            Received::End => break,
            // The stage before knows the cause.
            Received::Aborted => return Err(Stopped::Peer),
            Received::Cancelled => return Err(Stopped::because(Failure::cancelled())),
        }
    }
    for transforming in transforms.into_iter().flatten() {
        transforming.session.close();
    }
    sender.end().map_err(|_| Stopped::Peer)
}

/// The transform of one stream.
struct Transforming<'a> {
    step: &'a Step,
    session: Transform,
    keeps_rejects: bool,
}

impl<'a> Transforming<'a> {
    fn begin(
        work: &Work<'_>,
        step: &'a Step,
        clock: &Clock,
        cancel: &Cancel,
    ) -> Result<Self, Stopped> {
        let failed = |e| failed(work, step, e);
        let sandbox = work.sandbox(&step.stage, clock, cancel);
        let mut session = step.stage.connector.transform(sandbox).map_err(failed)?;
        session.open(&step.stage.config).map_err(failed)?;
        let allowed = plan::rejects(&work.plan.document).is_some();
        let keeps_rejects = allowed && step.stage.spec.supports_rejects;
        let schema = session.begin(&step.input, keeps_rejects);
        let schema = schema.map_err(failed)?;
        match has_same_columns(&schema, &step.output) {
            true => Ok(Self {
                step,
                session,
                keeps_rejects,
            }),
            false => Err(Stopped::because(other_columns(step))),
        }
    }
}

fn failed(work: &Work<'_>, step: &Step, error: rapidbyte_runtime::Error) -> Stopped {
    let failure = work.failed(error, &step.stage.key);
    Stopped::because(match failure.stream {
        Some(_) => failure,
        None => failure.in_stream(&step.input.stream),
    })
}

fn other_columns(step: &Step) -> Failure {
    let text = "the transformer has other columns than the plan";
    let failure = Failure::new(Class::Run, "contract_broken", text);
    let mut failure = failure.in_stream(&step.input.stream);
    failure.connector = Some(step.stage.connector.name().into());
    failure.export = Some("transformer.schema");
    failure.hint("report it to the connector's author: the connector has a bug")
}
