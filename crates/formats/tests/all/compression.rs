//! Compressed files: whole or refused, whatever was done to their bytes.

use std::convert::Infallible;
use std::io::Write;

use proptest::prelude::*;
use rapidbyte_formats::Compression;
use rapidbyte_formats::compression::{Chunks, Compressor, Decompressor, Stop};

const ALL: [Compression; 3] = [Compression::Gzip, Compression::Zstd, Compression::Lz4];
/// No piece that a decompressor gives is larger, whatever the file expands to.
const PIECE_BYTES: usize = 1 << 18;
const WINDOW_BYTES: usize = 8 << 20;

/// A file in memory, given in pieces of one size.
struct Pieces<'a> {
    rest: &'a [u8],
    piece: usize,
}

impl Chunks for Pieces<'_> {
    type Error = Infallible;

    fn fill(&mut self) -> Result<&[u8], Infallible> {
        Ok(&self.rest[..self.rest.len().min(self.piece)])
    }

    fn consume(&mut self, len: usize) {
        self.rest = &self.rest[len..];
    }
}

/// The plain bytes, or the error's code and text.
fn read(
    compression: Compression,
    file: &[u8],
    piece: usize,
) -> Result<Vec<u8>, (&'static str, String)> {
    let pieces = Pieces { rest: file, piece };
    let mut file = Decompressor::new(compression, pieces, WINDOW_BYTES).unwrap();
    let mut plain = Vec::new();
    loop {
        let Stop::Format(error) = match file.fill() {
            Ok([]) => return Ok(plain),
            Ok(bytes) => {
                assert!(compression == Compression::None || bytes.len() <= PIECE_BYTES);
                plain.extend_from_slice(bytes);
                let len = bytes.len();
                file.consume(len);
                continue;
            }
            Err(stop) => stop,
        };
        return Err((error.code, error.message));
    }
}

fn written(compression: Compression, plain: &[u8]) -> Vec<u8> {
    let mut compressor = Compressor::new(compression).unwrap();
    let mut file = Vec::new();
    for part in plain.chunks(1000) {
        compressor.push(part).unwrap();
        file.extend(compressor.take());
    }
    file.extend(compressor.finish().unwrap());
    file
}

/// Lines that compress, yet not to nothing.
fn lines(count: u32) -> Vec<u8> {
    let line = |n: u32| format!("{n},row {},{}\n", n % 7, n.wrapping_mul(2_654_435_761));
    (0..count).flat_map(|n| line(n).into_bytes()).collect()
}

#[test]
fn a_written_file_reads_back_and_is_the_same_each_time() {
    for compression in [ALL[0], ALL[1], ALL[2], Compression::None] {
        for plain in [Vec::new(), b"a".to_vec(), lines(100_000)] {
            let file = written(compression, &plain);
            assert_eq!(file, written(compression, &plain), "{compression:?}");
            for piece in [1 << 19, 1000] {
                assert_eq!(read(compression, &file, piece).unwrap(), plain);
            }
        }
    }
}

#[test]
fn a_file_of_several_members_or_frames_is_read_to_its_end() {
    for compression in ALL {
        let mut file = Vec::new();
        for part in ["a\n", "", "b\n"] {
            file.extend(written(compression, part.as_bytes()));
        }
        for piece in [1, 3, 1 << 19] {
            assert_eq!(read(compression, &file, piece).unwrap(), b"a\nb\n");
        }
    }
}

#[test]
fn skippable_frames_are_skipped_wherever_they_stand() {
    let skippable = [
        &0x184D_2A53_u32.to_le_bytes()[..],
        &5_u32.to_le_bytes(),
        b"notes",
    ]
    .concat();
    for compression in [Compression::Zstd, Compression::Lz4] {
        let frame = written(compression, b"a\n");
        let file = [&skippable[..], &frame, &skippable, &frame, &skippable].concat();
        assert_eq!(read(compression, &file, 7).unwrap(), b"a\na\n");
        let (code, text) = read(compression, &file[..file.len() - 1], 7).unwrap_err();
        assert_eq!(code, "compressed_truncated", "{text}");
    }
}

#[test]
fn a_file_that_ends_early_is_refused_at_every_length() {
    // Incompressible, so that the file has several blocks.
    let mut plain = lines(20_000);
    plain.extend((0..600_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8));
    for compression in ALL {
        let file = written(compression, &plain);
        let ends = (1..200).chain((200..file.len()).step_by(4999));
        for end in ends.chain(file.len() - 12..file.len()) {
            let (code, text) = read(compression, &file[..end], 1 << 19).unwrap_err();
            assert_eq!(
                code, "compressed_truncated",
                "{compression:?} {end}: {text}"
            );
            assert!(text.contains(&format!("at byte {end} ")), "{end}: {text}");
        }
    }
}

/// A file of LZ4 blocks of 256 KiB that ends exactly between two of them.
#[test]
fn an_end_between_two_blocks_is_not_taken_for_the_end_of_the_file() {
    let plain = vec![b'x'; 1 << 20];
    let file = written(Compression::Lz4, &plain);
    // The frame's header: magic, flags, block size, checksum; then the first block's length.
    let first = u32::from_le_bytes(file[7..11].try_into().unwrap()) as usize;
    let (code, _) = read(Compression::Lz4, &file[..11 + first], 1 << 19).unwrap_err();
    assert_eq!(code, "compressed_truncated");
}

#[test]
fn other_bytes_after_the_end_or_instead_of_a_file_are_refused() {
    for compression in ALL {
        let file = written(compression, b"a\n");
        for garbage in [&b"\0\0\0\0\0\0\0\0"[..], b"more\n"] {
            let (code, text) = read(compression, &[&file[..], garbage].concat(), 5).unwrap_err();
            assert_eq!(code, "compressed_trailing_bytes", "{compression:?}: {text}");
            let place = format!("from byte {}", file.len());
            assert!(text.contains(&place), "{text}");
        }
        let (code, text) = read(compression, b"id,name\n1,a\n", 5).unwrap_err();
        assert_eq!(code, "compressed_damaged", "{text}");
    }
}

#[test]
fn a_file_that_expands_without_end_is_given_in_bounded_pieces() {
    for compression in ALL {
        let mut compressor = Compressor::new(compression).unwrap();
        let zeros = vec![b'\n'; 1 << 20];
        for _ in 0..256 {
            compressor.push(&zeros).unwrap();
        }
        let file = compressor.finish().unwrap();
        assert!(file.len() < 2 << 20);
        let pieces = Pieces {
            rest: &file,
            piece: 1 << 19,
        };
        let mut file = Decompressor::new(compression, pieces, WINDOW_BYTES).unwrap();
        let mut total = 0;
        loop {
            let Ok(bytes) = file.fill() else { panic!() };
            let len = bytes.len();
            assert!(len <= PIECE_BYTES);
            if len == 0 {
                break;
            }
            total += len;
            file.consume(len);
        }
        assert_eq!(total, 256 << 20);
    }
}

#[test]
fn a_window_above_the_limit_is_refused_before_it_is_allocated() {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(27).unwrap();
    encoder.write_all(b"a\n").unwrap();
    encoder.flush().unwrap();
    let file = encoder.finish().unwrap();
    let (code, text) = read(Compression::Zstd, &file, 100).unwrap_err();
    assert_eq!(code, "zstd_window_too_large", "{text}");
    let pieces = Pieces {
        rest: &file,
        piece: 100,
    };
    let mut large = Decompressor::new(Compression::Zstd, pieces, 128 << 20).unwrap();
    assert!(matches!(large.fill(), Ok(b"a\n")));
}

#[test]
fn the_legacy_format_of_lz4_is_refused_by_name() {
    let file = 0x184C_2102_u32.to_le_bytes();
    let (code, _) = read(Compression::Lz4, &file, 100).unwrap_err();
    assert_eq!(code, "compressed_unsupported");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// A changed byte is an error or, in a part of a header that says nothing about the content,
    /// changes nothing.
    #[test]
    fn a_changed_byte_is_never_another_text(at in any::<prop::sample::Index>(), bit in 0..8_u8, rows in 1_u32..2000) {
        let plain = lines(rows);
        for compression in ALL {
            let mut file = written(compression, &plain);
            let at = at.index(file.len());
            file[at] ^= 1_u8 << bit;
            if let Ok(found) = read(compression, &file, 1000) {
                // The empty text: a frame that became a skippable one is skipped.
                prop_assert!(found == plain || (found.is_empty() && at < 4), "{compression:?} {at}");
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1_usize..50) {
        for compression in ALL {
            let _ = read(compression, &bytes, piece);
            let magic: &[u8] = match compression {
                Compression::Gzip => b"\x1f\x8b\x08\0\0\0\0\0\0\xff",
                Compression::Zstd => b"\x28\xb5\x2f\xfd",
                _ => b"\x04\x22\x4d\x18\x64\x40\xa7",
            };
            let _ = read(compression, &[magic, &bytes].concat(), piece);
        }
    }
}
