//! As much of Thrift's compact protocol as is needed to check sizes before the `parquet` crate
//! reads them ("Thrift compact protocol" and "parquet.thrift" in the documentation of Parquet).

/// Parquet does not nest structs, lists and maps deeper than this.
const MAX_NESTING: u32 = 32;

/// Why bytes could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// They end too early.
    Short,
    /// They are not what they should be.
    Wrong,
}

type Result<T> = std::result::Result<T, Unreadable>;

/// A page's header, which comes before its data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PageHeader {
    /// 0 data, 1 index, 2 dictionary, 3 data of the second version.
    pub kind: i64,
    /// After decompression.
    pub plain_bytes: i64,
    /// In the file.
    pub stored_bytes: i64,
    /// Nulls included.
    pub values: i64,
    /// Bytes of the header itself.
    pub header_bytes: usize,
}

/// The header at the beginning of `bytes`. More bytes may follow it.
pub(crate) fn page_header(bytes: &[u8]) -> Result<PageHeader> {
    let mut input = Input { bytes, at: 0 };
    let mut header = PageHeader {
        kind: -1,
        plain_bytes: -1,
        stored_bytes: -1,
        values: -1,
        header_bytes: 0,
    };
    input.structure(0, &mut |input, id, kind, depth| {
        match (id, kind) {
            (1, Kind::I32) => header.kind = input.signed()?,
            (2, Kind::I32) => header.plain_bytes = input.signed()?,
            (3, Kind::I32) => header.stored_bytes = input.signed()?,
            // DataPageHeader, DictionaryPageHeader, DataPageHeaderV2 begin with `num_values`.
            (5 | 7 | 8, Kind::Struct) => {
                input.structure(depth + 1, &mut |input, id, kind, depth| {
                    if (id, kind) == (1, Kind::I32) {
                        header.values = input.signed()?;
                        return Ok(());
                    }
                    input.skip(kind, depth)
                })?;
            }
            _ => input.skip(kind, depth)?,
        }
        Ok(())
    })?;
    header.header_bytes = input.at;
    Ok(header)
}

/// How deep the schema of a file's metadata is nested.
pub(crate) fn schema_depth(metadata: &[u8]) -> Result<usize> {
    let mut input = Input {
        bytes: metadata,
        at: 0,
    };
    let mut deepest = 0;
    input.structure(0, &mut |input, id, kind, depth| {
        if (id, kind) != (2, Kind::List) {
            return input.skip(kind, depth);
        }
        let (kind, count) = input.list()?;
        if kind != Kind::Struct {
            return Err(Unreadable::Wrong);
        }
        // Children that are still to come, for each open group.
        let mut open: Vec<i64> = Vec::new();
        for _ in 0..count {
            let mut children = 0;
            input.structure(depth + 1, &mut |input, id, kind, depth| {
                if (id, kind) == (5, Kind::I32) {
                    children = input.signed()?;
                    return Ok(());
                }
                input.skip(kind, depth)
            })?;
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            if children > 0 {
                open.push(children);
                deepest = deepest.max(open.len());
            }
            while open.last() == Some(&0) {
                open.pop();
            }
        }
        Ok(())
    })?;
    Ok(deepest)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Byte,
    I16,
    I32,
    I64,
    Double,
    Binary,
    List,
    Map,
    Struct,
    Uuid,
}

impl Kind {
    fn of(code: u8) -> Result<Self> {
        Ok(match code {
            1 | 2 => Self::Bool,
            3 => Self::Byte,
            4 => Self::I16,
            5 => Self::I32,
            6 => Self::I64,
            7 => Self::Double,
            8 => Self::Binary,
            9 | 10 => Self::List,
            11 => Self::Map,
            12 => Self::Struct,
            13 => Self::Uuid,
            _ => return Err(Unreadable::Wrong),
        })
    }
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Takes one field: its number, its kind and its depth.
type OnField<'f, 'a> = dyn FnMut(&mut Input<'a>, i64, Kind, u32) -> Result<()> + 'f;

impl<'a> Input<'a> {
    fn byte(&mut self) -> Result<u8> {
        let byte = *self.bytes.get(self.at).ok_or(Unreadable::Short)?;
        self.at += 1;
        Ok(byte)
    }

    fn advance(&mut self, bytes: u64) -> Result<()> {
        let left = (self.bytes.len() - self.at) as u64;
        if bytes > left {
            return Err(Unreadable::Short);
        }
        // At most what is left.
        self.at += bytes as usize;
        Ok(())
    }

    fn unsigned(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Unreadable::Wrong)
    }

    fn signed(&mut self) -> Result<i64> {
        let value = self.unsigned()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    fn structure(&mut self, depth: u32, on_field: &mut OnField<'_, 'a>) -> Result<()> {
        if depth > MAX_NESTING {
            return Err(Unreadable::Wrong);
        }
        let mut id = 0_i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            id = match head >> 4 {
                0 => self.signed()?,
                delta => id.saturating_add(delta.into()),
            };
            let kind = Kind::of(head & 0x0f)?;
            on_field(self, id, kind, depth)?;
        }
    }

    fn list(&mut self) -> Result<(Kind, u64)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.unsigned()?,
            few => few.into(),
        };
        // An empty list of nothing is written by some.
        let kind = match head & 0x0f {
            0 if count == 0 => Kind::Byte,
            code => Kind::of(code)?,
        };
        Ok((kind, count))
    }

    /// Skips a field's value.
    fn skip(&mut self, kind: Kind, depth: u32) -> Result<()> {
        match kind {
            // It is a part of the field's head.
            Kind::Bool => Ok(()),
            kind => self.skip_item(kind, depth),
        }
    }

    fn skip_item(&mut self, kind: Kind, depth: u32) -> Result<()> {
        if depth > MAX_NESTING {
            return Err(Unreadable::Wrong);
        }
        match kind {
            Kind::Bool | Kind::Byte => self.advance(1),
            Kind::I16 | Kind::I32 | Kind::I64 => self.unsigned().map(|_| ()),
            Kind::Double => self.advance(8),
            Kind::Uuid => self.advance(16),
            Kind::Binary => {
                let length = self.unsigned()?;
                self.advance(length)
            }
            Kind::List => {
                let (kind, count) = self.list()?;
                for _ in 0..count {
                    self.skip_item(kind, depth + 1)?;
                }
                Ok(())
            }
            Kind::Map => {
                let count = self.unsigned()?;
                if count == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                let (key, value) = (Kind::of(kinds >> 4)?, Kind::of(kinds & 0x0f)?);
                for _ in 0..count {
                    self.skip_item(key, depth + 1)?;
                    self.skip_item(value, depth + 1)?;
                }
                Ok(())
            }
            Kind::Struct => self.structure(depth + 1, &mut |input, _, kind, depth| {
                input.skip(kind, depth)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data page of 300 values, 1000 bytes, 500 stored, with statistics.
    const HEADER: [u8; 23] = [
        0x15, 0x00, 0x15, 0xd0, 0x0f, 0x15, 0xe8, 0x07, 0x2c, 0x15, 0xd8, 0x04, 0x15, 0x00, 0x15,
        0x06, 0x1c, 0x18, 0x01, b'x', 0x00, 0x00, 0x00,
    ];

    #[test]
    fn a_page_header_gives_its_sizes() {
        let mut bytes = HEADER.to_vec();
        bytes.extend([1, 2, 3]);
        let header = page_header(&bytes).unwrap();
        assert_eq!(
            (header.kind, header.plain_bytes, header.stored_bytes),
            (0, 1000, 500)
        );
        assert_eq!((header.values, header.header_bytes), (300, HEADER.len()));
        for end in 0..HEADER.len() {
            assert_eq!(page_header(&HEADER[..end]), Err(Unreadable::Short), "{end}");
        }
    }

    #[test]
    fn endless_nesting_ends() {
        assert_eq!(page_header(&[0x1c; 100]), Err(Unreadable::Wrong));
        assert_eq!(page_header(&[0x19; 100]), Err(Unreadable::Wrong));
        assert_eq!(page_header(&[0xff; 100]), Err(Unreadable::Wrong));
    }
}
