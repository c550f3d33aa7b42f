//! Parquet and Arrow files.

use std::panic::PanicHookInfo;
use std::sync::{Arc, Once};

use rapidbyte_columnar::{File, Kind, Limits};

/// Read to the end, within the limits.
pub fn parquet(data: &[u8]) {
    read(Kind::Parquet, data);
}

/// The same of Arrow's file and stream formats.
pub fn arrow(data: &[u8]) {
    read(Kind::Arrow, data);
}

/// The decoders of the crates `parquet` and `arrow` panic for some damaged pages, and ours catch that
/// where they call them: it is an error natively, and inside a component its end. libFuzzer's hook
/// would take it for a crash before it is caught. A panic that nobody catches is still one.
fn let_decoders_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !is_of_a_decoder(info) {
                hook(info);
            }
        }));
    });
}

fn is_of_a_decoder(info: &PanicHookInfo<'_>) -> bool {
    let file = info.location().map_or("", |place| place.file());
    let mut folders = file.split(['/', '\\']);
    folders.any(|folder| folder.starts_with("arrow-") || folder.starts_with("parquet-"))
}

fn read(kind: Kind, data: &[u8]) {
    let_decoders_panic();
    let limits = Limits {
        batch_bytes: 4096,
        max_record_bytes: 1 << 16,
    };
    let Ok(file) = File::open(kind, Arc::new(data.to_vec())) else {
        return;
    };
    let Ok(mut reader) = file.read(None, limits) else {
        return;
    };
    // Rows without columns take no bytes: a short file can hold more of them than anybody waits for.
    for _ in 0..200 {
        match reader.next_batch() {
            Ok(Some(batch)) => assert_eq!(batch.schema().fields(), reader.schema().fields()),
            Ok(None) | Err(_) => return,
        }
    }
}
