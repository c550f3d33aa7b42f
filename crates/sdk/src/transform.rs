//! Transforms: the traits that an author implements, and their export.

use std::cell::RefCell;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use rapidbyte_wire::ipc;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::bindings::exports_transform as wit;
use crate::{Reject, Relation, Result, Spec, TransformPlan, config, messages};

/// A step between a source and a destination, which makes new rows of the rows of each batch.
pub trait Transform: Sized + 'static {
    /// The configuration. Put `#[serde(deny_unknown_fields)]` on it, so that a misspelt key is an error. A transform is
    /// granted nothing, so `x-grant` has no effect here.
    type Config: DeserializeOwned + JsonSchema;
    /// Transforms one stream.
    type Transformer: Transformer;
    /// `transform-` and a name.
    const NAME: &'static str;
    /// Usually `env!("CARGO_PKG_VERSION")`.
    const VERSION: &'static str;
    /// One sentence.
    const DESCRIPTION: &'static str;
    /// The systems whose native value forms the transform accepts and returns.
    const NATIVE_FORMS: &'static [&'static str] = &[];
    /// Whether it can continue after a row that cannot be transformed, see [`Transformer::keep_rejects`].
    const SUPPORTS_REJECTS: bool = false;

    /// Checks the configuration.
    fn open(config: Self::Config) -> Result<Self>;

    /// The rows after the transform, from the rows before it.
    fn plan(&mut self, input: &Relation) -> Result<TransformPlan>;

    /// Begins to transform a stream.
    fn begin(&mut self, input: &Relation) -> Result<Self::Transformer>;
}

/// Transforms one stream, batch by batch.
pub trait Transformer: 'static {
    /// The schema of the batches that come out.
    fn schema(&self) -> SchemaRef;

    /// Takes the next batch, after [`next`](Self::next) has returned `None`.
    fn put(&mut self, batch: RecordBatch) -> Result<()>;

    /// The next batch that comes of the last `put`, or `None` if no more rows come of it. A batch without rows goes
    /// nowhere.
    fn next(&mut self) -> Result<Option<RecordBatch>>;

    /// From now on a row that cannot be transformed is a reject. Called before the first batch, if the operator allows
    /// rejects and [`Transform::SUPPORTS_REJECTS`] is set.
    fn keep_rejects(&mut self) {}

    /// Rows of the last `put` that cannot be transformed: at most 1,000 at a time, and none if there are no more.
    fn rejects(&mut self) -> Vec<Reject> {
        Vec::new()
    }
}

impl Relation {
    /// The schema of the rows.
    pub fn arrow_schema(&self) -> Result<Schema> {
        Ok(ipc::decode_schema(&self.schema)?)
    }
}

/// The description of a [`Transform`].
pub fn spec<T: Transform>() -> Spec {
    Spec {
        native_forms: T::NATIVE_FORMS.iter().map(|s| (*s).into()).collect(),
        supports_rejects: T::SUPPORTS_REJECTS,
        ..Spec::plain(
            T::NAME,
            T::VERSION,
            T::DESCRIPTION,
            config::schema::<T::Config>(),
        )
    }
}

/// Opens a transform from its configuration as JSON, as the host does.
pub fn open<T: Transform>(config: &str) -> Result<T> {
    T::open(config::parse(config)?)
}

/// The exported form of a [`Transform`].
#[doc(hidden)]
pub struct TransformExport<T>(std::marker::PhantomData<T>);
#[doc(hidden)]
pub struct SessionExport<T>(RefCell<T>);
#[doc(hidden)]
pub struct TransformerExport<T>(RefCell<Transforming<T>>);

struct Transforming<T> {
    transformer: T,
    schema: SchemaRef,
    decoder: ipc::Decoder,
    encoder: ipc::Encoder,
}

impl<T: Transform> wit::Guest for TransformExport<T> {
    type Session = SessionExport<T>;
    type Transformer = TransformerExport<T::Transformer>;

    fn describe() -> Spec {
        spec::<T>()
    }

    fn open(config: String) -> Result<wit::Session> {
        let transform = T::open(config::parse(&config)?)?;
        Ok(wit::Session::new(SessionExport(RefCell::new(transform))))
    }
}

impl<T: Transform> wit::GuestSession for SessionExport<T> {
    fn plan(&self, input: Relation) -> Result<TransformPlan> {
        self.0.borrow_mut().plan(&input)
    }

    fn begin(&self, input: Relation, keeps_rejects: bool) -> Result<wit::Transformer> {
        let decoder = ipc::Decoder::new(&input.schema)?;
        let mut transformer = self.0.borrow_mut().begin(&input)?;
        if keeps_rejects {
            transformer.keep_rejects();
        }
        let schema = transformer.schema();
        let encoder = ipc::Encoder::new(&schema)?;
        Ok(wit::Transformer::new(TransformerExport(RefCell::new(
            Transforming {
                transformer,
                schema,
                decoder,
                encoder,
            },
        ))))
    }
}

impl<T: Transformer> wit::GuestTransformer for TransformerExport<T> {
    fn schema(&self) -> Vec<u8> {
        self.0.borrow().encoder.schema_message().to_vec()
    }

    fn put(&self, batch: wit::Batch) -> Result<()> {
        let Transforming {
            transformer,
            decoder,
            ..
        } = &mut *self.0.borrow_mut();
        transformer.put(messages::decode(decoder, batch)?)
    }

    fn next(&self) -> Result<Option<wit::Batch>> {
        let Transforming {
            transformer,
            schema,
            encoder,
            ..
        } = &mut *self.0.borrow_mut();
        while let Some(batch) = transformer.next()? {
            if batch.num_rows() > 0 {
                return messages::encode(encoder, schema, &batch).map(Some);
            }
        }
        Ok(None)
    }

    fn rejects(&self) -> Vec<Reject> {
        self.0.borrow_mut().transformer.rejects()
    }
}

/// Exports a [`Transform`] as this crate's connector. Natively it expands to nothing that runs.
#[macro_export]
macro_rules! export_transform {
    ($transform:ty) => {
        // A native linker does not take the exported names as symbols.
        #[cfg(target_family = "wasm")]
        const _: () = {
            type Export = $crate::transform::TransformExport<$transform>;
            $crate::bindings::transform_world::export_transform_world!(
                Export with_types_in $crate::bindings::transform_world
            );
        };
    };
}
