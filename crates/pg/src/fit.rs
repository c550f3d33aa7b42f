//! Which field fits which column, and how its values get there.
//!
//! [`plain`] gives fields that do not come from PostgreSQL the type that holds all their values:
//!
//! | Arrow | PostgreSQL |
//! | --- | --- |
//! | Boolean; Int8, Int16, UInt8; Int32, UInt16; Int64, UInt32 | `boolean`; `smallint`; `integer`; `bigint` |
//! | UInt64 | `numeric(20,0)` |
//! | Float16, Float32; Float64 | `real`; `double precision` |
//! | Decimal128(p, s), Decimal256(p, s) | `numeric(p,s)` |
//! | Utf8, LargeUtf8, Null | `text` |
//! | Binary, LargeBinary, FixedSizeBinary | `bytea` |
//! | `arrow.uuid`; `arrow.json` | `uuid`; `json` (which keeps the document's text as it is) |
//! | Date32, Date64; Time32, Time64 | `date`; `time` |
//! | Timestamp without and with a zone | `timestamp`, `timestamptz` |
//! | Duration, Interval(MonthDayNano) | `interval` |
//! | List, LargeList of these | arrays; lists of lists of one length have more dimensions |
//! | others | refused |
//!
//! Finer than a microsecond, out of range and uneven lists are refused value by value.

use arrow_schema::{DataType, Field};
use rapidbyte_wire::types as wire_types;

use crate::PgError;
use crate::builtin::{self, Builtin};
use crate::cast::has_inner_modifier;
use crate::decision::{Decision, Fit, refused};
use crate::form::{Form, OPAQUE, carried};
use crate::model::{Column, Kind, PgType};
use crate::oids::Rewrite;
use crate::op::Op;
use crate::types;
use crate::types::numeric::numeric_note;
use crate::types::text::{length_note, limit};

/// Says how a field gets into a column of the target table (with the target's own OIDs).
///
/// `invalid_metadata` if the field's PostgreSQL metadata does not parse.
pub fn fit(field: &Field, target: &Column) -> Result<Fit, PgError> {
    Ok(decide(field, target)?.0)
}

/// The column to create for a field: its original column, or else the column of [`plain`].
///
/// `Err(reason)` inside: no type of PostgreSQL holds the field.
pub fn column_for(field: &Field) -> Result<Result<Column, String>, PgError> {
    Ok(source_of(field)?.map(|source| source.column))
}

/// The column for a field that does not come from PostgreSQL, or why there is none.
///
/// `typmod` says how fine the values are; `type_text` is the type to create, without that limit.
pub fn plain(field: &Field) -> Result<Column, String> {
    let mut column = plain_type(field, 0)?;
    column.name = field.name().clone();
    column.not_null = !field.is_nullable();
    Ok(column)
}

fn plain_type(field: &Field, depth: usize) -> Result<Column, String> {
    if wire_types::extension_name(field) == Some(OPAQUE) {
        return Err("its values are in a system's own form, and their type is not declared".into());
    }
    if let Some(column) = types::column(field) {
        return Ok(column);
    }
    match field.data_type() {
        DataType::List(item) | DataType::LargeList(item) => array_of(item, depth),
        DataType::Struct(_) | DataType::Map(..) => Err(
            "write structs and maps as JSON, or split them into columns: PostgreSQL has no \
                     type for them here"
                .into(),
        ),
        other => Err(format!("PostgreSQL has no type for {other}")),
    }
}

/// A field as PostgreSQL sees it.
struct Source {
    pub column: Column,
    /// The values are text that the server made of another type.
    pub is_text_cast: bool,
    pub is_opaque: bool,
    /// The text may hold what PostgreSQL's does not.
    pub is_foreign: bool,
}

fn source_of(field: &Field) -> Result<Result<Source, String>, PgError> {
    if let Some((column, form)) = carried(field)? {
        return Ok(Ok(Source {
            column,
            is_text_cast: form.needs_text_cast(),
            is_opaque: matches!(form, Form::Opaque(_)),
            is_foreign: false,
        }));
    }
    Ok(plain(field).map(|column| Source {
        column,
        is_text_cast: false,
        is_opaque: false,
        is_foreign: true,
    }))
}

/// The fit and, where bytes go to the column itself, how they are made.
pub(crate) fn decide(field: &Field, target: &Column) -> Result<(Fit, Option<Op>), PgError> {
    let source = match source_of(field)? {
        Ok(source) => source,
        Err(reason) => return Ok((Fit::Refused(reason), None)),
    };
    if target.is_computed() {
        let reason = "the server computes this column".into();
        return Ok((Fit::Refused(reason), None));
    }
    if let Some(ty) = target.ty.without_input() {
        let reason = format!(
            "only the server itself creates values of {}",
            ty.display_name()
        );
        return Ok((Fit::Refused(reason), None));
    }
    Ok(match source.decide_for(field, target) {
        Ok((op, None)) => (Fit::Direct, Some(op)),
        Ok((op, Some(note))) if op.writes_json_strings() => (Fit::Converted(note), Some(op)),
        Ok((op @ Op::Jsonb { .. }, Some(note))) if !source.is_json() => {
            (Fit::Checked(note), Some(op))
        }
        Ok((op, Some(note))) => (Fit::Widened(note), Some(op)),
        Err(fit) => (fit, None),
    })
}

const JSONB_NOTE: &str =
    "jsonb drops blanks and the order of keys; a duplicate key and a number -0 are refused";

const JSON_STRINGS_NOTE: &str = "texts become JSON strings";

impl Source {
    fn is_json(&self) -> bool {
        let (from, _) = self.column.stripped();
        [builtin::JSON.oid, builtin::JSONB.oid].contains(&from.oid)
    }

    pub(crate) fn decide_for(&self, field: &Field, target: &Column) -> Decision {
        let (from, from_typmod) = self.column.stripped();
        let (to, to_typmod) = target.stripped();
        if *field.data_type() == DataType::Null {
            return Ok((Op::Null, None));
        }
        if wire_types::is_program_value(field) {
            refuse_other_values(from, to)?;
        }
        if self.is_text_cast || from.is_textual() || matches!(from.kind, Kind::Enum { .. }) {
            let version = to.oid == builtin::JSONB.oid;
            if wire_types::is_json_strings(field) && (version || to.oid == builtin::JSON.oid) {
                let note = JSON_STRINGS_NOTE.to_owned();
                return Ok((Op::JsonString { version }, Some(note)));
            }
            return self.text_into(target);
        }
        if !to.has_binary() {
            return refused(format!("{} has no binary form", target.type_text));
        }
        if self.is_json() {
            return self.json_into(from, target);
        }
        if self.is_opaque {
            same_wire(from, from_typmod, to, to_typmod)?;
            let op = match Rewrite::plan(from, to) {
                Rewrite::Keep => Op::Plain,
                rewrite => Op::Rewrite(rewrite),
            };
            return Ok((op, numeric_note((from, from_typmod), to_typmod)));
        }
        values_into(field, (from, from_typmod), (to, to_typmod))
    }

    fn text_into(&self, target: &Column) -> Decision {
        let (from, from_typmod) = self.column.stripped();
        let (to, to_typmod) = target.stripped();
        let from_typmod = if self.is_text_cast { -1 } else { from_typmod };
        let text = Op::Text {
            check: self.is_foreign,
            limit: limit(from, to, to_typmod),
        };
        if to.is_textual() {
            return Ok((text, length_note(from, from_typmod, to, to_typmod)));
        }
        if self.is_text_cast {
            return self.cast_into(target);
        }
        if to.oid == builtin::JSONB.oid {
            let check = self.is_foreign;
            let op = Op::Jsonb { check };
            return Ok((op, Some(JSONB_NOTE.to_owned())));
        }
        match &to.kind {
            Kind::Enum { labels } => {
                if let Kind::Enum { labels: given } = &from.kind
                    && let Some(missing) = given.iter().find(|label| !labels.contains(label))
                {
                    let (name, type_text) = (to.display_name(), &target.type_text);
                    return refused(format!(
                        "the target's {name} lacks the label {missing:?}: ALTER TYPE \
                         {type_text} ADD VALUE {}",
                        crate::ident::quote_literal(missing)
                    ));
                }
                Ok((text, None))
            }
            _ => self.cast_into(target),
        }
    }

    /// Text that the server reads: it must not round or cut parts where nobody sees it.
    fn cast_into(&self, target: &Column) -> Decision {
        let ((from, from_typmod), (to, to_typmod)) = (self.column.stripped(), target.stripped());
        if from.is_row_of_xml() {
            return refused(format!(
                "the server's text of {} drops the declarations of the xml in it: read it through a view that \
                 has the xml in columns of its own",
                from.display_name()
            ));
        }
        let is_same = || same_wire(from, from_typmod, to, to_typmod).is_ok();
        if has_inner_modifier(to) && !(self.is_text_cast && is_same()) {
            return refused(format!(
                "the server would round or cut parts of {}, whose types have limits",
                to.display_name()
            ));
        }
        Err(Fit::Cast(target.type_text.clone()))
    }

    fn json_into(&self, from: &PgType, target: &Column) -> Decision {
        let (to, to_typmod) = target.stripped();
        let check = self.is_foreign;
        if to.oid == builtin::JSONB.oid {
            let note = (from.oid != to.oid).then(|| JSONB_NOTE.to_owned());
            return Ok((Op::Jsonb { check }, note));
        }
        if to.oid == builtin::JSON.oid {
            return Ok((Op::Text { check, limit: None }, None));
        }
        if to.is_textual() {
            let limit = limit(from, to, to_typmod);
            let note = length_note(from, -1, to, to_typmod);
            return Ok((Op::Text { check, limit }, note));
        }
        self.cast_into(target)
    }
}

/// Refuses bytes of a program for text, and text for bytes: neither is the text of the other.
fn refuse_other_values(from: &PgType, to: &PgType) -> Result<(), Fit> {
    let is_bytes = |ty: &PgType| ty.element().oid == builtin::BYTEA.oid;
    let is_text = |ty: &PgType| {
        let ty = ty.element();
        ty.is_textual() || [builtin::JSON.oid, builtin::JSONB.oid].contains(&ty.oid)
    };
    if is_text(from) && is_bytes(to) {
        return refused("text of a program does not become bytes");
    }
    if is_bytes(from) && is_text(to) {
        return refused("bytes of a program do not become text");
    }
    Ok(())
}

/// True for two types that are one: built-in types by OID, others by schema and name.
fn same_type(from: &PgType, to: &PgType) -> bool {
    if from.is_builtin() || to.is_builtin() {
        return from.oid == to.oid;
    }
    from.schema == to.schema && from.name == to.name
}

/// Refuses two types whose values differ in binary, or whose modifiers would change a value.
fn same_wire(from: &PgType, from_typmod: i32, to: &PgType, to_typmod: i32) -> Result<(), Fit> {
    let ((from, from_typmod), (to, to_typmod)) =
        (from.stripped(from_typmod), to.stripped(to_typmod));
    let differ = || {
        refused(format!(
            "{} and {} are different types",
            from.display_name(),
            to.display_name()
        ))
    };
    match (&from.kind, &to.kind) {
        (Kind::Array { element: from }, Kind::Array { element: to }) => {
            same_wire(from, from_typmod, to, to_typmod)
        }
        _ if from.is_textual() && to.is_textual() => {
            match length_note(from, from_typmod, to, to_typmod) {
                None => Ok(()),
                Some(note) => refused(note),
            }
        }
        _ if !same_type(from, to) => differ(),
        (Kind::Base { .. }, Kind::Base { .. }) => check_modifier(from, from_typmod, to_typmod),
        (Kind::Enum { labels: from }, Kind::Enum { labels: to }) => {
            match from.iter().find(|label| !to.contains(label)) {
                None => Ok(()),
                Some(label) => refused(format!("the target's enum lacks the label {label:?}")),
            }
        }
        (Kind::Composite { fields: ours }, Kind::Composite { fields: theirs }) => {
            let names = |fields: &[crate::model::CompositeField]| -> Vec<String> {
                fields.iter().map(|field| field.name.clone()).collect()
            };
            if names(ours) != names(theirs) {
                return refused(format!(
                    "the target's {} has the fields {:?}, not {:?}",
                    to.display_name(),
                    names(theirs),
                    names(ours)
                ));
            }
            ours.iter()
                .zip(theirs)
                .try_for_each(|(from, to)| same_wire(&from.ty, from.typmod, &to.ty, to.typmod))
        }
        (Kind::Range { subtype: from }, Kind::Range { subtype: to }) => same_wire(from, -1, to, -1),
        (Kind::Multirange { range: from }, Kind::Multirange { range: to }) => {
            same_wire(from, -1, to, -1)
        }
        _ => differ(),
    }
}

/// Refuses a modifier that would round, cut or refuse values (`numeric_recv`, `timestamp_recv`
/// and their like apply it).
fn check_modifier(ty: &PgType, from: i32, to: i32) -> Result<(), Fit> {
    if to < 0 || from == to {
        return Ok(());
    }
    let Some(modifier) = types::modifier(ty) else {
        // Modifiers of extension types: their meaning is not known here.
        return refused(format!(
            "the modifiers of {} differ ({from} and {to})",
            ty.name
        ));
    };
    (modifier.fits)(from, to)
        .or_else(|what| refused(format!("the target's {} is narrower: {what}", ty.name)))
}

/// Values that Arrow has a type for.
fn values_into(field: &Field, from: (&PgType, i32), to: (&PgType, i32)) -> Decision {
    let no_way = || {
        refused(format!(
            "{} does not become {}",
            from.0.display_name(),
            to.0.display_name()
        ))
    };
    let Some(builtin) = builtin::by_oid(to.0.oid).copied() else {
        return match (&to.0.kind, field.data_type()) {
            (Kind::Array { element }, _) => into_array(field, from, (element, to.1)),
            _ => no_way(),
        };
    };
    if let Some(decision) = types::into(field, from.0, builtin, to.1) {
        return decision;
    }
    // Bytes, documents, times and decimals: of the same type, with a modifier that fits.
    if from.0.oid != to.0.oid {
        return no_way();
    }
    check_modifier(from.0, from.1, to.1)?;
    Ok((Op::Plain, numeric_note(from, to.1)))
}

/// `max` in PostgreSQL's arrays.
const MAX_DIMENSIONS: usize = 6;

/// The column for lists of `item`, which is `depth` lists deep; a list of lists is an array of more dimensions.
fn array_of(item: &Field, depth: usize) -> Result<Column, String> {
    if depth == MAX_DIMENSIONS {
        return Err(format!("arrays have at most {MAX_DIMENSIONS} dimensions"));
    }
    let element = plain_type(item, depth + 1)?;
    if let Kind::Array { .. } = element.ty.kind {
        return Ok(Column {
            dimensions: element.dimensions + 1,
            ..element
        });
    }
    let array = builtin::by_oid(element.ty.oid).map(Builtin::array_ty);
    Ok(Column {
        ty: array.ok_or("the element's type does not have an array type")?,
        type_text: format!("{}[]", element.type_text),
        dimensions: 1,
        ..element
    })
}

/// A list in an array of elements of the type `to`.
fn into_array(field: &Field, from: (&PgType, i32), to: (&PgType, i32)) -> Decision {
    let Kind::Array { element: from_item } = &from.0.kind else {
        return refused("a single value does not become an array");
    };
    let mut item = field;
    let mut depth = 0;
    while let DataType::List(inner) | DataType::LargeList(inner) = item.data_type() {
        item = inner;
        depth += 1;
    }
    // The element travels by the same rules as a column of its type would.
    let element = Source {
        column: Column {
            typmod: from.1,
            ..Column::new("", (**from_item).clone(), from_item.name.clone())
        },
        is_text_cast: false,
        is_opaque: false,
        is_foreign: true,
    };
    let target = Column {
        typmod: to.1,
        ..Column::new("", to.0.clone(), to.0.name.clone())
    };
    // The mark of a column is about the strings in its lists.
    let item = match rapidbyte_wire::types::is_json_strings(field) {
        true => &item.clone().with_metadata(field.metadata().clone()),
        false => item,
    };
    match element.decide_for(item, &target) {
        Ok((op, note)) => Ok((
            Op::List {
                oid: to.0.oid,
                depth,
                element: Box::new(op),
            },
            note,
        )),
        Err(Fit::Cast(_)) => refused(format!(
            "elements of {} do not become {}",
            from_item.display_name(),
            to.0.display_name()
        )),
        Err(fit) => Err(fit),
    }
}
