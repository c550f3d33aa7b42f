//! A run that ends early leaves no statement that the server works on: it has nobody who waits for it.

use std::process::Stdio;

use rapidbyte_testkit::postgres::{Client, Database, shared};
use rustix::process::{Pid, Signal, kill_process};

use crate::network::until;
use crate::postgres::copy;
use crate::remote::{Ends, Server};
use crate::support::Folder;

/// A function that never returns, and takes a lock by which the test sees that it is at work.
const SLOW: &str = "CREATE FUNCTION public.slow(id int) RETURNS boolean LANGUAGE plpgsql AS $$ \
    BEGIN IF id = 2 THEN PERFORM pg_advisory_lock(4711); LOOP END LOOP; END IF; RETURN true; END $$; ";
const ROWS: &str = "CREATE TABLE public.t AS SELECT i AS id FROM generate_series(1, 3) i; ";
/// The names of the cases, and what the source and the target have.
const CASES: [(&str, &str, &str); 3] = [
    (
        "the COPY of a view",
        "ALTER TABLE public.t RENAME TO rows; CREATE VIEW public.t AS SELECT id, public.slow(id) AS s FROM public.rows",
        "",
    ),
    (
        "a CHECK",
        "",
        "CREATE TABLE public.t (id int CHECK (public.slow(id)))",
    ),
    (
        "a commit",
        "",
        "CREATE TABLE public.t (id int); CREATE FUNCTION public.late() RETURNS trigger LANGUAGE plpgsql AS $$ \
         BEGIN PERFORM public.slow(NEW.id); RETURN NULL; END $$; CREATE CONSTRAINT TRIGGER late AFTER INSERT ON public.t \
         DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.late()",
    ),
];

/// The two databases of a case.
struct Sides {
    source: Database<'static>,
    target: Database<'static>,
}

impl Sides {
    fn new(of_source: &str, of_target: &str) -> Self {
        let (source, target) = (shared().database(), shared().database());
        let sql = format!("{SLOW}{ROWS}{of_source}");
        source.client().batch_execute(&sql).expect("a source");
        let sql = format!("{SLOW}{of_target}");
        target.client().batch_execute(&sql).expect("a target");
        Self { source, target }
    }

    fn pipeline(&self) -> String {
        copy(&self.source, &self.target, "[public.t]", "schema: public")
    }

    fn clients(&self) -> [Client; 2] {
        [self.source.client(), self.target.client()]
    }
}

fn count(clients: &mut [Client], sql: &str) -> i64 {
    let of = |client: &mut Client| {
        client
            .query_one(sql, &[])
            .expect("a count")
            .get::<_, i64>(0)
    };
    clients.iter_mut().map(of).sum()
}

fn wait_until_slow(clients: &mut [Client]) {
    let sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND granted \
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    until(|| count(clients, sql) == 1, "the slow statement has begun");
}

fn wait_until_gone(clients: &mut [Client], about: &str) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
        AND application_name LIKE 'rapidbyte%' AND state <> 'idle'";
    until(
        || count(clients, sql) == 0,
        &format!("no statement is left: {about}"),
    );
}

#[test]
fn a_signal_ends_the_statements_of_a_run() {
    for (about, of_source, of_target) in CASES {
        for signal in [Signal::INT, Signal::KILL] {
            let sides = Sides::new(of_source, of_target);
            let folder = Folder::new();
            folder.write("p.yaml", sides.pipeline());
            let mut clients = sides.clients();
            let mut command = folder.command(&["run", "p.yaml"]);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let mut run = Ends(command.spawn().expect("the program starts"));
            wait_until_slow(&mut clients);
            kill_process(Pid::from_child(&run.0), signal).expect("it runs");
            let code = run.0.wait().expect("it ends").code();
            assert_eq!(code, (signal == Signal::INT).then_some(130), "{about}");
            wait_until_gone(&mut clients, about);
        }
    }
}

#[test]
fn a_run_that_is_cancelled_on_the_server_ends_its_statements() {
    for (about, of_source, of_target) in CASES {
        let sides = Sides::new(of_source, of_target);
        let folder = Folder::new();
        folder.write("pipelines/p.yaml", sides.pipeline());
        let mut clients = sides.clients();
        let server = Server::start(&folder, &["--listen", "127.0.0.1:0"]);
        let mut command = folder.command(&["run", "t", "--server", &server.url]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut run = Ends(command.spawn().expect("the program starts"));
        wait_until_slow(&mut clients);
        kill_process(Pid::from_child(&run.0), Signal::INT).expect("it runs");
        assert_eq!(run.0.wait().expect("it ends").code(), Some(130), "{about}");
        wait_until_gone(&mut clients, about);
    }
}
