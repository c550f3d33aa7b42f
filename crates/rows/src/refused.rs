//! A refusal as the contract has it.

/// Defines `refused(refusal, stream)`, which makes the contract's error of a [`Refusal`](crate::Refusal), and
/// `of_host(checked)`, which makes it of what no host does. Each part has types of its own, generated in the module that
/// is named.
#[macro_export]
macro_rules! refused {
    ($($types:ident)::+) => {
        /// An error that the contract knows, of a stream.
        fn refused(refusal: $crate::Refusal, stream: &str) -> $($types)::+::Error {
            use $crate::Owner;
            use $($types)::+::{Error, ErrorKind};

            let kind = match refusal.owner {
                Owner::Config => ErrorKind::Config,
                Owner::Schema => ErrorKind::Schema,
                Owner::Data => ErrorKind::Data,
                Owner::Internal => ErrorKind::Internal,
            };
            Error {
                kind,
                code: refusal.code.into(),
                message: refusal.message,
                hint: refusal.hint,
                stream: Some(stream.into()),
                column: refusal.column,
                location: refusal.row.map(|row| format!("row {row}")),
            }
        }

        /// A call that is not for the one stream of a read or a load.
        #[allow(dead_code, reason = "a transform gets no such call")]
        fn of_host<T>(checked: Result<T, String>) -> Result<T, $($types)::+::Error> {
            checked.map_err(|text| {
                let refusal = $crate::Refusal::internal("not_one_stream", text);
                let mut error = refused(refusal.hint($crate::REPORT), "");
                error.stream = None;
                error
            })
        }
    };
}
