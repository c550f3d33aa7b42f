use proptest::prelude::*;

use super::*;

const CODECS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];
const LIMIT: usize = 1 << 20;

fn repetitive(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 100 % 7) as u8).collect()
}

fn round_trip(compressor: &mut Compressor, decompressor: &mut Decompressor, batch: &[u8]) -> Frame {
    let frame = compressor.compress(batch.to_vec()).unwrap();
    assert_eq!(frame.original_len, batch.len());
    assert!(frame.bytes.len() <= batch.len(), "never larger than stored");
    let back = decompressor.decompress(frame.clone()).unwrap();
    assert_eq!(back, batch);
    frame
}

#[test]
fn none_moves_the_bytes_without_a_copy() {
    let batch = vec![7; 1000];
    let at = batch.as_ptr();
    let frame = Compressor::new(Compression::None)
        .unwrap()
        .compress(batch)
        .unwrap();
    assert_eq!(frame.bytes.as_ptr(), at);
    let back = Decompressor::new(LIMIT).decompress(frame).unwrap();
    assert_eq!(back.as_ptr(), at);
}

#[test]
fn repetition_becomes_smaller() {
    for codec in [Compression::Lz4, Compression::Zstd] {
        let mut compressor = Compressor::new(codec).unwrap();
        let mut decompressor = Decompressor::new(LIMIT);
        for len in [1000, 70_000, 500_000, 300] {
            let frame = round_trip(&mut compressor, &mut decompressor, &repetitive(len));
            assert_eq!(frame.compression, codec);
            assert!(frame.bytes.len() < len / 5, "{codec} {len}");
            assert!(frame.bytes.capacity() <= frame.bytes.len() + 16);
        }
    }
}

#[test]
fn incompressible_bytes_are_stored() {
    for codec in CODECS {
        let mut compressor = Compressor::new(codec).unwrap();
        let mut decompressor = Decompressor::new(LIMIT);
        let frame = round_trip(&mut compressor, &mut decompressor, b"abcdefg");
        assert_eq!(frame.compression, Compression::None);
        round_trip(&mut compressor, &mut decompressor, b"");
    }
}

#[test]
fn working_memory_of_a_large_batch_is_given_back() {
    for codec in [Compression::Lz4, Compression::Zstd] {
        let mut compressor = Compressor::new(codec).unwrap();
        compressor.compress(repetitive(1000)).unwrap();
        assert!(!compressor.scratch.is_empty(), "a small one is kept");
        compressor
            .compress(vec![1; KEEP_SCRATCH_BYTES + 1])
            .unwrap();
        assert_eq!(compressor.scratch.capacity(), 0);
    }
}

#[test]
fn a_batch_above_the_limit_is_refused() {
    for codec in CODECS {
        let frame = Compressor::new(codec)
            .unwrap()
            .compress(repetitive(1001))
            .unwrap();
        let error = Decompressor::new(1000).decompress(frame).unwrap_err();
        assert_eq!(error.code(), "batch_too_large");
        assert_eq!(
            error.to_string(),
            "a batch of 1001 bytes exceeds the limit of 1000 bytes"
        );
    }
}

#[test]
fn a_length_that_the_bytes_cannot_hold_is_refused_before_allocating() {
    let frame = Frame {
        bytes: vec![0; 10],
        original_len: MAX_ORIGINAL_BYTES,
        compression: Compression::Lz4,
    };
    let error = Decompressor::new(usize::MAX).decompress(frame).unwrap_err();
    assert_eq!(
        error.to_string(),
        "damaged lz4 frame: 10 bytes are too few for the expected 2113929216"
    );
}

#[test]
fn a_wrong_length_is_damage() {
    for codec in CODECS {
        let good = Compressor::new(codec)
            .unwrap()
            .compress(repetitive(5000))
            .unwrap();
        for wrong in [0, 4999, 5001] {
            let mut frame = good.clone();
            frame.original_len = wrong;
            let error = Decompressor::new(LIMIT).decompress(frame).unwrap_err();
            assert_eq!(error.code(), "damaged_frame", "{codec} {wrong}");
        }
    }
}

#[test]
fn a_frame_cut_anywhere_is_damage() {
    for codec in CODECS {
        let good = Compressor::new(codec)
            .unwrap()
            .compress(repetitive(5000))
            .unwrap();
        let mut decompressor = Decompressor::new(LIMIT);
        for len in 0..good.bytes.len() {
            let mut frame = good.clone();
            frame.bytes.truncate(len);
            let error = decompressor.decompress(frame).unwrap_err();
            assert_eq!(error.code(), "damaged_frame", "{codec} {len}");
        }
        decompressor.decompress(good).unwrap();
    }
}

proptest! {
    #[test]
    fn every_batch_comes_back(
        batches in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..300), 1_usize..300), 1..6),
    ) {
        for codec in CODECS {
            let mut compressor = Compressor::new(codec).unwrap();
            let mut decompressor = Decompressor::new(LIMIT);
            for (piece, times) in &batches {
                round_trip(&mut compressor, &mut decompressor, &piece.repeat(*times));
            }
        }
    }

    #[test]
    fn damage_never_panics_nor_changes_the_length(
        position in any::<proptest::sample::Index>(),
        flip in 1_u8..=255,
        garbage in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        for codec in [Compression::Lz4, Compression::Zstd] {
            let mut compressor = Compressor::new(codec).unwrap();
            let mut decompressor = Decompressor::new(LIMIT);
            let mut frame = compressor.compress(repetitive(3000)).unwrap();
            let at = position.index(frame.bytes.len());
            frame.bytes[at] ^= flip;
            if let Ok(batch) = decompressor.decompress(frame) {
                prop_assert_eq!(batch.len(), 3000);
            }
            let frame = Frame { bytes: garbage.clone(), original_len: 3000, compression: codec };
            if let Ok(batch) = decompressor.decompress(frame) {
                prop_assert_eq!(batch.len(), 3000);
            }
            round_trip(&mut compressor, &mut decompressor, &repetitive(3000));
        }
    }
}
