//! Digests of rows that two servers compute by themselves, to compare a table with its copy.
//!
//! The digest of a row has 128 bits: two calls of `hashtextextended` on the row's text, with the seeds 0 and 1. The
//! function is not cryptographic: digests find accidents, not an attacker. The values of a row have the form that a
//! [`Recipe`] gives them: each is cast to the type that it has in the target, so that a widened column is equal to its
//! original. A text that a load would refuse for such a column makes the digest of its row another one.
//!
//! A digest does not depend on the order of the rows, and sums of digests belong to buckets of rows whose digests begin
//! with the same bits. So two sums that differ lead to the rows that differ, without an index, a key or a common order of
//! both servers.

use serde::{Deserialize, Serialize};

use crate::builtin::{self, BPCHAR, INTERVAL, NUMERIC, TEXT, VARCHAR, XML, numeric_typmod};
use crate::cast::{self, Texts};
use crate::error::{Owner, PgError};
use crate::ident::{qualified, quote_ident, quote_literal};
use crate::model::{Column, Kind, PgType};

/// The name of the form of these digests. The number changes with anything that changes a digest.
pub const FORM: &str = "postgresql-2";

/// Settings of a transaction that digests, in addition to [`crate::catalog::SESSION_SETTINGS`].
pub const SETTINGS: &str = "SET LOCAL lc_monetary = 'C'; SET LOCAL xmlbinary = 'base64'";

/// Takes [`SETTINGS`] back, in a transaction that does more.
pub const SETTINGS_AS_SET: &str = "SET LOCAL lc_monetary = DEFAULT; SET LOCAL xmlbinary = DEFAULT";

/// Returns one text, [`PROVEN`], if the server computes digests as other servers do. One with the other order of bytes
/// in a number does not.
pub const PROOF: &str =
    "SELECT pg_catalog.hashtextextended('rapidbyte digests rows' COLLATE pg_catalog.\"C\", 1)";
/// The answer to [`PROOF`].
pub const PROVEN: &str = "-8530120147570878729";

/// The form of each value in a digest, as the connectors of both sides exchange it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// [`FORM`].
    form: String,
    /// One for each column of the stream. `None`: the column does not count.
    columns: Vec<Option<Shape>>,
    /// Positions of the key among the columns.
    key: Vec<usize>,
    /// The column that says that a row is deleted, and so not in the target: its position, and whether it is boolean.
    deleted: Option<(usize, bool)>,
}

/// The form of the values of one column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    /// The built-in type that they are cast to. `None`: their text.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    ty: Option<String>,
    /// Digits after the point, of a numeric.
    #[serde(skip_serializing_if = "Option::is_none")]
    scale: Option<i16>,
    /// The type as which the server reads the texts of a source whose column has another type.
    #[serde(skip_serializing_if = "Option::is_none")]
    made: Option<Made>,
}

/// A built-in type that the server reads texts as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Made {
    #[serde(rename = "type")]
    ty: PgType,
    typmod: i32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    modifiers: Vec<i32>,
}

impl Made {
    fn of(column: &Column) -> Self {
        let (ty, typmod) = column.stripped();
        let modifiers = match typmod < 0 || ty.oid == INTERVAL.oid || ty.oid == INTERVAL.array {
            // The modifiers of an interval are not numbers.
            true => Vec::new(),
            false => modifiers(&column.type_text),
        };
        let typmod = if modifiers.is_empty() { -1 } else { typmod };
        Self {
            ty: ty.clone(),
            typmod,
            modifiers,
        }
    }

    fn is_array_of(&self, element: u32) -> bool {
        matches!(&self.ty.kind, Kind::Array { element: of } if of.oid == element)
    }

    /// The type with its modifiers.
    fn sql(&self) -> String {
        let modifiers: Vec<String> = self.modifiers.iter().map(i32::to_string).collect();
        match modifiers.is_empty() {
            true => qualified("pg_catalog", &self.ty.name),
            false => format!(
                "{}({})",
                qualified("pg_catalog", &self.ty.name),
                modifiers.join(", ")
            ),
        }
    }
}

/// The numbers in the parentheses of a type, such as 18 and 4 of `numeric(18,4)[]`.
fn modifiers(type_text: &str) -> Vec<i32> {
    let inside = type_text.split_once('(').map(|(_, rest)| rest);
    let inside = inside.and_then(|rest| rest.split_once(')'));
    let numbers = inside.map(|(numbers, _)| numbers.split(',').map(str::parse).collect());
    numbers.and_then(Result::ok).unwrap_or_default()
}

impl Recipe {
    /// The recipe for a target with these columns, one for each column of the stream. `casts` says whether the server
    /// makes the values of a column of texts.
    pub fn new(
        columns: &[Option<&Column>],
        casts: impl Fn(usize) -> bool,
        key: Vec<usize>,
        deleted: Option<(usize, bool)>,
    ) -> Self {
        Self {
            form: FORM.to_owned(),
            columns: columns
                .iter()
                .enumerate()
                .map(|(at, column)| column.map(|column| Shape::of(column, casts(at))))
                .collect(),
            key,
            deleted,
        }
    }

    /// As JSON.
    pub fn to_json(&self) -> Result<String, PgError> {
        serde_json::to_string(self).map_err(|error| wrong(error.to_string()))
    }

    /// Reads [`Recipe::to_json`] for a stream with this number of columns.
    pub fn parse(json: &str, columns: usize) -> Result<Self, PgError> {
        let recipe: Self = serde_json::from_str(json).map_err(|error| wrong(error.to_string()))?;
        let of_key = recipe
            .key
            .iter()
            .chain(recipe.deleted.iter().map(|(at, _)| at));
        let fits = |at: &usize| recipe.columns.get(*at).is_some_and(Option::is_some);
        let made = recipe.columns.iter().flatten();
        let mut made = made.filter_map(|shape| shape.made.as_ref());
        if !made.all(|made| made.ty.is_builtin())
            || recipe.form != FORM
            || recipe.columns.len() != columns
            || !of_key.clone().all(fits)
        {
            return Err(wrong(format!("{json} for {columns} columns")));
        }
        Ok(recipe)
    }

    /// The rows of `from`, the text after FROM, that meet all `conditions`. `columns` are its columns, one for each of
    /// the recipe; a column that does not count may be absent.
    pub fn rows<'a>(
        &self,
        from: &'a str,
        columns: &[Option<&Column>],
        conditions: Vec<String>,
    ) -> Digested<'a> {
        let mut conditions = conditions;
        let counted = |at: usize| {
            let (shape, column) = (self.columns.get(at)?.as_ref()?, (*columns.get(at)?)?);
            Some(Counted {
                value: shape.value(column),
                mark: shape.mark(column),
            })
        };
        if let Some((at, is_flag)) = self.deleted
            && let Some(Some(column)) = columns.get(at)
        {
            let test = if is_flag { "IS NOT TRUE" } else { "IS NULL" };
            conditions.push(format!("{} {test}", quote_ident(&column.name)));
        }
        let key_type = |at: usize| {
            let shape = self.columns[at].as_ref();
            shape.map(Shape::key_type).unwrap_or_default()
        };
        Digested {
            from,
            columns: (0..self.columns.len()).map(counted).collect(),
            key: self
                .key
                .iter()
                .filter_map(|at| Some((counted(*at)?.value, key_type(*at))))
                .collect(),
            conditions,
        }
    }

    /// The condition that a row has one of these keys, each a list of the texts of [`Digested::rows`]. `columns` as for
    /// [`Recipe::rows`].
    pub fn has_key(&self, columns: &[Option<&Column>], keys: &[Vec<String>]) -> String {
        self.rows("", columns, Vec::new()).is_one_of(keys)
    }

    /// The statement that gives the rows of a table their keys as these texts spell them: a key may be equal to another
    /// one and have other characters. `columns` as for [`Recipe::rows`].
    pub fn respell(
        &self,
        table: &str,
        columns: &[Option<&Column>],
        keys: &[Vec<String>],
    ) -> String {
        let rows = self.rows("", columns, Vec::new());
        let key = self.key.iter().filter_map(|at| *columns.get(*at)?);
        let key: Vec<&Column> = key.collect();
        let names: Vec<String> = key.iter().map(|column| quote_ident(&column.name)).collect();
        let spelled = |of: &dyn Fn(usize) -> String| {
            let all: Vec<String> = (0..names.len()).map(of).collect();
            all.join(", ")
        };
        // The names of a table's columns may be short.
        let given = |at: usize| format!("k._rapidbyte_key_{at}");
        // Some keys are compared as texts.
        let set = spelled(&|at| format!("{} = {}::{}", names[at], given(at), key[at].type_text));
        let equal = spelled(&|at| rows.key[at].0.clone());
        let other = spelled(&given);
        let (was, is) = (spelled(&|at| format!("t.{}", names[at])), spelled(&given));
        let list: Vec<String> = keys.iter().map(|key| rows.literals(key)).collect();
        format!(
            "UPDATE {table} AS t SET {set} FROM (VALUES {}) AS k ({}) WHERE ({equal}) = ({other}) \
             AND ROW({was})::pg_catalog.text <> ROW({is})::pg_catalog.text",
            list.join(", "),
            spelled(&|at| format!("_rapidbyte_key_{at}"))
        )
    }

    /// How many columns the key has.
    pub fn key_columns(&self) -> usize {
        self.key.len()
    }
}

impl Shape {
    fn of(column: &Column, is_cast: bool) -> Self {
        let (ty, typmod) = column.stripped();
        // Numbers of other objects are shown as names, which are other objects on another server.
        let name = match builtin::is_reg(ty.oid) {
            true => "oid",
            false => &ty.name,
        };
        Self {
            made: (is_cast && ty.is_builtin()).then(|| Made::of(column)),
            ty: is_scalar(ty).then(|| name.to_owned()),
            scale: (ty.oid == NUMERIC.oid)
                .then(|| numeric_typmod(typmod).map(|(_, scale)| scale))
                .flatten(),
        }
    }

    /// The type of a value in a digest.
    fn sql(&self) -> String {
        match self.ty.as_deref() {
            None => qualified("pg_catalog", "text"),
            Some(name) if is_text(name) => qualified("pg_catalog", "text"),
            Some(name) => qualified("pg_catalog", name),
        }
    }

    /// The type of [`Shape::value`].
    fn key_type(&self) -> String {
        match self.is_made_numeric() {
            true => qualified("pg_catalog", "text"),
            false => self.sql(),
        }
    }

    fn is_made_numeric(&self) -> bool {
        self.made
            .as_ref()
            .is_some_and(|made| made.ty.oid == NUMERIC.oid)
    }

    /// An expression whose text follows the text of the row: empty, unless a load would refuse the value of this column
    /// as it is on the source. `None`: every value that the server reads is accepted.
    fn mark(&self, column: &Column) -> Option<String> {
        let made = self.made.as_ref()?;
        // A target has its own type.
        if column.stripped().0.oid == made.ty.oid {
            return None;
        }
        let text = format!("{}::pg_catalog.text", quote_ident(&column.name));
        let value = format!("{text}::{}", made.sql());
        let accepted = cast::condition(&text, &value, &made.ty, made.typmod, Texts::Plain)?;
        Some(format!(
            "CASE WHEN {text} IS NULL OR ({accepted}) IS NOT FALSE THEN '' ELSE ' refused' END"
        ))
    }

    /// The value of a column in this form.
    fn value(&self, column: &Column) -> String {
        let name = quote_ident(&column.name);
        let (ty, typmod) = column.stripped();
        let Some(to) = self.ty.as_deref() else {
            let is_documents =
                matches!(&ty.kind, Kind::Array { element } if element.oid == XML.oid);
            return match &self.made {
                // The text of an array leaves the declaration of a document out.
                Some(made) if made.is_array_of(XML.oid) => {
                    format!("{name}::{}::pg_catalog.text[]::pg_catalog.text", made.sql())
                }
                _ if is_documents => format!("{name}::pg_catalog.text[]::pg_catalog.text"),
                Some(made) => format!("{name}::{}::pg_catalog.text", made.sql()),
                None => format!("{name}::pg_catalog.text"),
            };
        };
        if self.is_made_numeric() {
            // A text may have other zeros at its end than the modifier gives the value.
            let text = format!("{name}::{}::pg_catalog.text", self.sql());
            return format!(
                "CASE WHEN pg_catalog.strpos({text}, '.') > 0 THEN \
                 pg_catalog.rtrim(pg_catalog.rtrim({text}, '0'), '.') ELSE {text} END"
            );
        }
        if to == BPCHAR.name {
            return format!("pg_catalog.rtrim({name}::pg_catalog.text, ' ')");
        }
        if is_text(to) && ty.oid == BPCHAR.oid {
            // A cast to text takes the blanks at the end away, and a copy has them.
            return format!("CASE WHEN {name} IS NOT NULL THEN pg_catalog.concat({name}) END");
        }
        let scale = self.scale.filter(|scale| *scale > 0);
        let scale = scale.filter(|_| {
            numeric_typmod(typmod).map(|(_, s)| s) != self.scale || ty.oid != NUMERIC.oid
        });
        if let (true, Some(scale)) = (to == NUMERIC.name, scale) {
            // Zeros at the end do not change the value.
            let zeros = "0".repeat(usize::try_from(scale).unwrap_or(0));
            return format!("({name}::{} + 0.{zeros})", self.sql());
        }
        match ty.is_builtin() && ty.name == to && !is_text(to) && self.is_plain(column) {
            true => name,
            false => format!("{name}::{}", self.sql()),
        }
    }

    /// Whether the column has the type itself, and no domain over it.
    fn is_plain(&self, column: &Column) -> bool {
        column.ty.oid == column.stripped().0.oid
    }
}

/// A built-in type whose text is the same on every server, and that a value of another type can be cast to.
fn is_scalar(ty: &PgType) -> bool {
    let is_array = matches!(ty.kind, Kind::Array { .. });
    ty.is_builtin() && !is_array && builtin::by_oid(ty.oid).is_some()
}

/// A type whose values are compared as texts, whatever its length. Only a cast keeps the declaration of a document.
fn is_text(name: &str) -> bool {
    [TEXT.name, VARCHAR.name, XML.name, "name"].contains(&name)
}

/// A column that counts.
#[derive(Debug, Clone)]
struct Counted {
    /// The expression of its value.
    value: String,
    /// The expression of the text that follows the text of its row.
    mark: Option<String>,
}

/// Rows whose digests a server computes.
#[derive(Debug, Clone)]
pub struct Digested<'a> {
    from: &'a str,
    /// One for each column of the recipe. `None`: the column does not count.
    columns: Vec<Option<Counted>>,
    /// Values and their types.
    key: Vec<(String, String)>,
    conditions: Vec<String>,
}

impl Digested<'_> {
    /// Returns number, rows and both sums of each bucket with a number of `bits` bits. `within`: only rows of these
    /// buckets, by their bits and numbers. A server whose texts are not UTF-8 `recodes` them.
    pub fn buckets(&self, bits: u8, within: Option<(u8, &[u32])>, recodes: bool) -> String {
        let (rows, number) = (self.digests(&[], None, recodes), number(bits));
        let place = within.map(|(bits, numbers)| format!(" WHERE {}", is_in(bits, numbers)));
        format!(
            "SELECT {number} AS n, pg_catalog.count(*), pg_catalog.sum(h), pg_catalog.sum(l) FROM ({rows}) AS d{} GROUP BY 1",
            place.unwrap_or_default()
        )
    }

    /// Returns both halves and the values of the key of at most `max` rows of these buckets.
    pub fn rows(&self, bits: u8, numbers: &[u32], max: u32, recodes: bool) -> String {
        let (rows, place) = (
            self.digests(&self.key_texts(), None, recodes),
            is_in(bits, numbers),
        );
        format!("SELECT * FROM ({rows}) AS d WHERE {place} LIMIT {max}")
    }

    /// The same of the rows with these keys, and then a digest of each column: 0 for one that does not count.
    pub fn of_keys(&self, keys: &[Vec<String>], max: u32, recodes: bool) -> String {
        let digest = |counted: &Option<Counted>| match counted {
            Some(Counted { value, mark }) => {
                hash(&encoded(&marked(row(value), [mark.as_ref()]), recodes), 0)
            }
            None => "0".to_owned(),
        };
        let digests: Vec<String> = self.columns.iter().map(digest).collect();
        let digests = digests.join(", ");
        // An array has no limit of columns.
        let columns = format!("ARRAY[{digests}]::pg_catalog.int8[]::pg_catalog.text AS c");
        let mut more = self.key_texts();
        more.push(columns);
        let rows = self.digests(&more, Some(self.is_one_of(keys)), recodes);
        format!("SELECT * FROM ({rows}) AS d LIMIT {max}")
    }

    /// The values of the key as `k0`, `k1` and so on.
    fn key_texts(&self) -> Vec<String> {
        let key = self.key.iter().enumerate();
        key.map(|(at, (value, _))| format!("{value}::pg_catalog.text AS k{at}"))
            .collect()
    }

    /// The condition that a row has one of these keys.
    fn is_one_of(&self, keys: &[Vec<String>]) -> String {
        if keys.is_empty() || self.key.is_empty() {
            return "false".to_owned();
        }
        let list = keys.iter().map(|key| self.literals(key));
        let columns: Vec<&str> = self.key.iter().map(|(value, _)| value.as_str()).collect();
        let list: Vec<String> = list.collect();
        format!("({}) IN ({})", columns.join(", "), list.join(", "))
    }

    /// A key as a row of SQL.
    fn literals(&self, key: &[String]) -> String {
        let literal = |(text, (_, ty)): (&String, &(String, String))| {
            format!("{}::{ty}", quote_literal(&text.replace('\0', "")))
        };
        let values: Vec<String> = key.iter().zip(&self.key).map(literal).collect();
        format!("({})", values.join(", "))
    }

    /// The halves of the digest of each row as `h` and `l`, and `more`. `place` is a further condition. OFFSET keeps the
    /// server from computing an expression again for each use.
    fn digests(&self, more: &[String], place: Option<String>, recodes: bool) -> String {
        let names = more
            .iter()
            .map(|one| one.rsplit(' ').next().unwrap_or_default());
        let names: String = names.map(|name| format!(", {name}")).collect();
        let more: String = more.iter().map(|one| format!(", {one}")).collect();
        let counted = self.columns.iter().flatten();
        let values: Vec<&str> = counted.clone().map(|one| one.value.as_str()).collect();
        let marks = counted.map(|one| one.mark.as_ref());
        let text = encoded(&marked(row(&values.join(", ")), marks), recodes);
        let conditions = self.conditions.iter().chain(&place);
        let conditions: Vec<&str> = conditions.map(String::as_str).collect();
        let place = match conditions.is_empty() {
            true => String::new(),
            // A condition may end in a comment.
            false => format!(" WHERE ({}\n)", conditions.join("\n) AND (")),
        };
        let (high, low, from) = (hash("x", 0), hash("x", 1), self.from);
        format!(
            "SELECT {high} AS h, {low} AS l{names} FROM (SELECT {text} AS x{more} FROM {from}{place} OFFSET 0) AS r OFFSET 0"
        )
    }
}

/// The text of a row with these values.
fn row(values: &str) -> String {
    format!("ROW({values})::pg_catalog.text")
}

/// The text of a row, and its marks behind it.
fn marked<'a>(row: String, marks: impl IntoIterator<Item = Option<&'a String>>) -> String {
    let all = std::iter::once(row).chain(marks.into_iter().flatten().cloned());
    all.collect::<Vec<_>>().join(" || ")
}

/// The condition that the rows lie on one side of some values, which are compared as a whole. `columns` are the columns of
/// the server. Without values no row does.
pub fn beside(columns: &[&Column], values: &[String], is_lower: bool) -> String {
    if values.is_empty() || values.len() != columns.len() {
        return "false".to_owned();
    }
    let name = |column: &&Column| quote_ident(&column.name);
    let literal = |(column, text): (&&Column, &String)| {
        let ty = column.stripped().0;
        let literal = quote_literal(&text.replace('\0', ""));
        format!("{literal}::{}", qualified(&ty.schema, &ty.name))
    };
    let names: Vec<String> = columns.iter().map(name).collect();
    let literals: Vec<String> = columns.iter().zip(values).map(literal).collect();
    let operator = if is_lower { ">=" } else { "<=" };
    let mut conditions: Vec<String> = names
        .iter()
        .map(|name| format!("{name} IS NOT NULL"))
        .collect();
    conditions.push(match names.len() {
        1 => format!("{} {operator} {}", names[0], literals[0]),
        _ => format!(
            "({}) {operator} ({})",
            names.join(", "),
            literals.join(", ")
        ),
    });
    conditions.join(" AND ")
}

fn hash(text: &str, seed: u8) -> String {
    format!("pg_catalog.hashtextextended(({text}) COLLATE pg_catalog.\"C\", {seed})")
}

/// The bytes that the text has in UTF-8.
fn encoded(text: &str, recodes: bool) -> String {
    match recodes {
        false => text.to_owned(),
        true => format!(
            "pg_catalog.convert_from(pg_catalog.convert_to({text}, 'UTF8'), pg_catalog.getdatabaseencoding())"
        ),
    }
}

/// The first bits of a digest.
fn number(bits: u8) -> String {
    let mask = (1_u64 << bits) - 1;
    format!("((h >> {}) & {mask})", 64 - u32::from(bits))
}

fn is_in(bits: u8, numbers: &[u32]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    format!(
        "{} = ANY ('{{{}}}'::pg_catalog.int8[])",
        number(bits),
        numbers.join(",")
    )
}

fn wrong(text: String) -> PgError {
    PgError::new(
        Owner::Internal,
        "internal",
        format!("the recipe of a digest: {text}"),
    )
}
