//! `wasi:http/outgoing-handler`: the library's, which keeps the options of each request until the
//! instance ends, so that a few thousand requests would reach the limit of handles.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::p2::bindings::http::outgoing_handler::Host as Handler;
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, Host as Types};
use wasmtime_wasi_http::p2::types::{HostFutureIncomingResponse, HostOutgoingRequest};
use wasmtime_wasi_http::{RequestOptions, WasiHttpCtxView, WasiHttpView};

use crate::state::State;

type Handled = Result<Resource<HostFutureIncomingResponse>, ErrorCode>;
type Options = Option<Resource<RequestOptions>>;

pub(super) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut handler = linker.instance("wasi:http/outgoing-handler@0.2.12")?;
    handler.func_wrap(
        "handle",
        |mut store: StoreContextMut<'_, State>,
         (request, options): (Resource<HostOutgoingRequest>, Options)| {
            Ok((handle(&mut store.data_mut().http(), request, options)?,))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Makes the request. Its options end here: the guest has handed them over.
pub(super) fn handle(
    http: &mut WasiHttpCtxView<'_>,
    request: Resource<HostOutgoingRequest>,
    options: Options,
) -> wasmtime::Result<Handled> {
    let kept = options.as_ref().map(Resource::rep);
    let handled = http.handle(request, options);
    if let Some(kept) = kept {
        http.table
            .delete(Resource::<RequestOptions>::new_own(kept))?;
    }
    match handled {
        Ok(future) => Ok(Ok(future)),
        Err(error) => http.convert_error_code(error).map(Err),
    }
}
