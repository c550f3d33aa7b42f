//! Prints this crate's queries, for the script that captures golden bytes:
//! `queries settings`, `queries columns 1,2`, `queries types columns.jsonl`,
//! `queries named app.mood app.point3`,
//! `queries select native|portable columns.jsonl types.jsonl`.

use rapidbyte_pg::{catalog, ident, select_expression};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let oids = |list: &str| {
        list.split(',')
            .map(str::parse)
            .collect::<Result<Vec<u32>, _>>()
    };
    let sql = match arguments.as_slice() {
        ["settings"] => catalog::SESSION_SETTINGS.to_owned(),
        ["named", names @ ..] => {
            let names: Vec<_> = names
                .iter()
                .filter_map(|name| name.split_once('.'))
                .collect();
            catalog::types_by_name_query(&names)
        }
        ["columns", list] => catalog::columns_query(&oids(list)?),
        ["types", columns] => catalog::Described::parse(read(columns)?.lines())?
            .types_query()
            .ok_or("built-in types only")?,
        ["select", mode, columns, types] => {
            let (columns, types) = (read(columns)?, read(types)?);
            let types = catalog::Types::parse(types.lines())?;
            let described = catalog::Described::parse(columns.lines())?;
            let relations: Vec<_> = described
                .relations(&types)
                .into_iter()
                .collect::<Result<_, _>>()?;
            let wide = relations
                .iter()
                .find(|relation| relation.name == "wide")
                .ok_or("no table wide")?;
            let expressions: Vec<_> = wide
                .columns
                .iter()
                .map(|column| select_expression(column, *mode == "native"))
                .collect();
            let table = ident::qualified(&wide.schema, &wide.name);
            format!("SELECT {} FROM {table} ORDER BY id", expressions.join(", "))
        }
        _ => return Err("see the first lines of this example".into()),
    };
    println!("{sql}");
    Ok(())
}

fn read(path: &str) -> std::io::Result<String> {
    std::fs::read_to_string(path)
}
