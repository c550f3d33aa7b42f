//! Queries as streams: their columns, their rows, and the one snapshot of a run.

use crate::common::*;
use rapidbyte_pg::builtin;
use rapidbyte_sdk::prelude::*;
use rapidbyte_testkit::postgres::{Client, Database, shared};
use source_postgres::Postgres;

const NAME: &str = "q";

fn database(sql: &str) -> Database<'static> {
    let database = shared().database();
    run(&mut database.client(), sql);
    database
}

fn selection(query: &str) -> Selection {
    Selection {
        query: Some(query.into()),
        ..whole(NAME)
    }
}

fn asked(query: &str) -> ReadRequest {
    ReadRequest {
        query: Some(query.into()),
        ..request(NAME)
    }
}

fn describe(source: &mut Postgres, query: &str, forms: &[&str]) -> Result<Stream> {
    let forms: Vec<String> = forms.iter().map(|form| (*form).to_owned()).collect();
    source.describe_query(NAME, query, &forms)
}

/// Each column with its Arrow type and the facts that travel, without what a query does not know.
fn columns_of(schema: &Schema) -> Vec<String> {
    let of = |field: &std::sync::Arc<Field>| {
        let metadata = &field.metadata()["rapidbyte.postgresql"];
        format!("{} {:?} {metadata}", field.name(), field.data_type())
    };
    schema.fields().iter().map(of).collect()
}

/// Makes a table with a column of each type of the server and a column of arrays of it. Gives the number of columns.
fn every_type(client: &mut Client) -> usize {
    let mut is_known = |name: &str| {
        let row = client.query_one("SELECT pg_catalog.to_regtype($1) IS NOT NULL", &[&name]);
        row.unwrap().get::<_, bool>(0)
    };
    let columns: Vec<String> = builtin::ALL
        .iter()
        .filter(|ty| is_known(ty.sql))
        .flat_map(|ty| {
            let (name, sql) = (ty.name, ty.sql);
            let array = (ty.array != 0).then(|| format!("\"{name}s\" {sql}[]"));
            [Some(format!("\"{name}\" {sql}")), array]
        })
        .flatten()
        .collect();
    let more = "n numeric(12, 2), c char(7), vc varchar(9), b bit(3), tz timestamptz(2), \
                nested int[][], \"C\" text COLLATE \"C\"";
    let columns_of_all = columns.join(", ");
    run(
        client,
        &format!("CREATE TABLE v ({columns_of_all}, {more}); INSERT INTO v DEFAULT VALUES"),
    );
    assert!(columns.len() > 80, "{columns:?}");
    columns.len() + 7
}

#[test]
fn each_type_of_a_query_is_the_type_of_its_table() {
    let database = shared().database();
    let count = every_type(&mut database.client());
    let mut source = open(&database.url());
    for forms in [&[][..], &["postgresql"]] {
        let owned: Vec<String> = forms.iter().map(|form| (*form).to_owned()).collect();
        let streams = source.discover(&owned).unwrap();
        let table = find(&streams, "public.v");
        let query = describe(&mut source, "SELECT * FROM public.v", forms).unwrap();
        assert_eq!(columns_of(&schema(&query)), columns_of(&schema(table)));
        assert_eq!(schema(&query).fields().len(), count);
        assert_eq!(query.source_types, table.source_types);
        assert!(query.primary_key.is_empty() && query.notes.contains(&"a query".to_owned()));
        let batches = |request: ReadRequest, source: &mut Postgres| {
            let request = ReadRequest {
                forms: owned.clone(),
                ..request
            };
            read(source, &request).unwrap()
        };
        let from_table = batches(request("public.v"), &mut source);
        let from_query = batches(asked("TABLE public.v"), &mut source);
        assert_eq!(from_table[0].columns(), from_query[0].columns());
    }
}

#[test]
fn a_column_of_a_query_may_be_null_whatever_it_is_taken_from() {
    let database = database(
        "CREATE DOMAIN positive AS int CHECK (VALUE > 0); CREATE TABLE a (id int PRIMARY KEY, p positive); \
         CREATE TABLE b (id int NOT NULL, a int NOT NULL); INSERT INTO a VALUES (1, 5), (2, NULL); \
         INSERT INTO b VALUES (10, 1)",
    );
    let mut source = open(&database.url());
    let query = "SELECT a.id, b.id AS other, a.p FROM public.a LEFT JOIN public.b ON b.a = a.id";
    let stream = describe(&mut source, query, &["postgresql"]).unwrap();
    let schema = schema(&stream);
    assert!(schema.fields().iter().all(|field| field.is_nullable()));
    // The server describes a domain as the type below it.
    assert_eq!(stream.source_types, ["integer"; 3]);
    let batches = read(&mut source, &asked(query)).unwrap();
    assert_eq!((rows(&batches), batches[0].column(1).null_count()), (2, 1));
}

#[test]
fn a_query_and_a_table_of_a_run_have_one_snapshot() {
    let database = database("CREATE TABLE t (id int); INSERT INTO t VALUES (1), (2), (3)");
    let query = "SELECT DISTINCT t.id FROM public.t JOIN public.t AS other USING (id)";
    for is_planned in [false, true] {
        let mut client = database.client();
        run(
            &mut client,
            "BEGIN; TRUNCATE t; INSERT INTO t VALUES (1), (2), (3); COMMIT",
        );
        let mut session = open(&database.url());
        if is_planned {
            session.discover(&[]).unwrap();
            describe(&mut session, query, &[]).unwrap();
        }
        let snapshot = session
            .snapshot(&[selection(query), whole("public.t")])
            .unwrap();
        run(
            &mut client,
            "INSERT INTO t VALUES (4); DELETE FROM t WHERE id = 1",
        );
        let mut joined = open(&database.url());
        for request in [asked(query), request("public.t")] {
            let request = ReadRequest {
                snapshot: snapshot.clone(),
                ..request
            };
            assert_eq!(ints(&read(&mut joined, &request).unwrap(), 0), [1, 2, 3]);
        }
        // Alone, in the transaction that took the snapshot.
        let snapshot = session.snapshot(&[selection(query)]).unwrap();
        run(&mut client, "INSERT INTO t VALUES (5)");
        let request = ReadRequest {
            snapshot,
            ..asked(query)
        };
        assert_eq!(ints(&read(&mut session, &request).unwrap(), 0), [2, 3, 4]);
    }
}

/// The name of a stream that the session knows as a table means the query.
#[test]
fn a_query_with_the_name_of_a_table_is_the_query() {
    let database = database("CREATE TABLE t (id int); INSERT INTO t VALUES (1)");
    let mut source = open(&database.url());
    source.discover(&[]).unwrap();
    let query = Some("SELECT 7 AS id".to_owned());
    let selection = Selection {
        query: query.clone(),
        ..whole("public.t")
    };
    let snapshot = source.snapshot(&[selection]).unwrap();
    let request = ReadRequest {
        query,
        snapshot,
        ..request("public.t")
    };
    assert_eq!(ints(&read(&mut source, &request).unwrap(), 0), [7]);
}

#[test]
fn a_refused_query_leaves_the_session_as_it_was() {
    let database = database("CREATE TABLE t (id int); INSERT INTO t VALUES (1)");
    let mut source = open(&database.url());
    source.discover(&[]).unwrap();
    let error = describe(&mut source, "SELECT", &[]).unwrap_err();
    assert_eq!(error.code, "query_columns", "{error:?}");
    let error = describe(&mut source, "SELECT é,, FROM public.t", &[]).unwrap_err();
    assert_eq!(
        (error.code.as_str(), kind(&error).as_str()),
        ("invalid_query", "Config")
    );
    assert!(
        error
            .message
            .starts_with("line 1, column 10 of the query: "),
        "{error:?}"
    );
    assert_eq!(error.stream.as_deref(), Some(NAME));
    let stream = describe(&mut source, "SELECT id FROM public.t", &[]).unwrap();
    assert_eq!(stream.source_types, ["integer"]);
    source
        .snapshot(&[selection("SELECT id FROM public.t")])
        .unwrap();
}

/// Policies are refused below a query as below a view.
#[test]
fn rows_that_policies_hide_from_a_query_are_refused() {
    let _ = shared()
        .database()
        .client()
        .batch_execute("CREATE ROLE query_policies LOGIN PASSWORD 'secret'");
    let database = database(
        "CREATE TABLE t (id int); INSERT INTO t VALUES (1), (2); ALTER TABLE t ENABLE ROW LEVEL SECURITY; \
         CREATE POLICY odd ON t USING (id % 2 = 1); GRANT SELECT ON t TO query_policies",
    );
    let mut source = open(&as_role(&database.url(), "query_policies"));
    let error = source
        .snapshot(&[selection("SELECT id FROM public.t")])
        .unwrap_err();
    assert_eq!(error.code, "row_level_security", "{error:?}");
    assert!(error.message.contains("the query"), "{error:?}");
}
