//! The records that runs refused, which the destination keeps.

use rapidbyte_engine::{Failure, Kept};
use rapidbyte_runtime::KeptReject;

use crate::pipeline::Pipeline;

/// The rejects of a pipeline.
pub struct Rejects {
    pub(crate) pipeline: Pipeline,
    pub(crate) kept: Kept,
}

impl Rejects {
    /// Calls `each` with the rejects, in the order in which they were kept, until it returns false. Without `with_data`
    /// they have no records.
    ///
    /// # Errors
    /// Errors of the destination.
    pub fn each(
        &mut self,
        with_data: bool,
        mut each: impl FnMut(KeptReject) -> bool,
    ) -> Result<(), Failure> {
        let read = self.kept.each(with_data, |kept| Ok(each(kept)));
        read.map_err(|failure| failure.redacted(&self.pipeline.document))
    }
}
