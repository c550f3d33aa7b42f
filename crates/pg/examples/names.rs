//! Prints names that quoting gets wrong easily, as a JSON array: `names [count]`.

fn main() {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok());
    let names = rapidbyte_pg::ident::nasty_names(count.unwrap_or(10_000));
    println!("{}", serde_json::json!(names));
}
