use std::io::{ErrorKind, Read, Write};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(30);

/// A server that takes connections when asked, with a proxy in front of it.
fn pair() -> (TcpListener, Proxy) {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let proxy = Proxy::to(server.local_addr().unwrap().port()).unwrap();
    (server, proxy)
}

fn connect(proxy: &Proxy) -> TcpStream {
    let client = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client
}

fn connected() -> (TcpStream, TcpStream, Proxy) {
    let (server, proxy) = pair();
    let client = connect(&proxy);
    let accepted = server.accept().unwrap().0;
    accepted.set_read_timeout(Some(LONG)).unwrap();
    (client, accepted, proxy)
}

fn read<const N: usize>(socket: &mut TcpStream) -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    socket.read_exact(&mut bytes).map(|()| bytes)
}

#[track_caller]
fn fired(proxy: &Proxy) {
    assert!(proxy.has_fired(LONG));
    assert_eq!(proxy.counts().faults, 1);
}

fn fault(when: When, what: Break) -> Fault {
    Fault {
        when,
        what,
        is_everywhere: false,
    }
}

#[test]
fn everything_passes_both_ways_and_is_counted() {
    let (mut client, mut server, proxy) = connected();
    // More than all the buffers between them hold.
    let sent: Vec<u8> = (0..8 << 20).map(|i: u32| (i % 251) as u8).collect();
    let mut writes = client.try_clone().unwrap();
    let copy = sent.clone();
    let writer = std::thread::spawn(move || {
        writes.write_all(&copy).unwrap();
        writes.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    server.read_to_end(&mut received).unwrap();
    writer.join().unwrap();
    assert!(received == sent);
    // Half closed, the other way is still there.
    server.write_all(b"thanks").unwrap();
    assert_eq!(&read::<6>(&mut client).unwrap(), b"thanks");
    // The proxy counts bytes a moment after they arrive.
    let begun = std::time::Instant::now();
    while proxy.counts().to_client < 6 {
        assert!(begun.elapsed() < LONG, "what has passed is not counted");
        std::thread::yield_now();
    }
    let counts = proxy.counts();
    assert_eq!((counts.to_server, counts.to_client), (8 << 20, 6));
    assert_eq!((counts.connections, counts.faults), (1, 0));
}

#[test]
fn a_reset_reaches_both_ends_before_the_word() {
    let (mut client, mut server, proxy) = connected();
    proxy.arm(fault(When::Before("COMMIT"), Break::Reset));
    client.write_all(b"BEGIN;COM").unwrap();
    assert_eq!(&read::<9>(&mut server).unwrap(), b"BEGIN;COM");
    client.write_all(b"MIT;").unwrap();
    fired(&proxy);
    for socket in [&mut client, &mut server] {
        let error = read::<1>(socket).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    assert_eq!(proxy.counts().to_server, 9);
    // Only that connection.
    connect(&proxy);
}

#[test]
fn an_orderly_end_comes_after_the_word_has_passed() {
    let (mut client, mut server, proxy) = connected();
    proxy.arm(fault(When::After("COMMIT", Way::ToServer, 0), Break::Close));
    client.write_all(b"COMMIT").unwrap();
    assert_eq!(&read::<6>(&mut server).unwrap(), b"COMMIT");
    fired(&proxy);
    for socket in [&mut client, &mut server] {
        let error = read::<1>(socket).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }
}

#[test]
fn a_stalled_connection_continues_where_it_stopped() {
    let (mut client, mut server, proxy) = connected();
    proxy.arm(fault(When::Passed(Way::ToServer, 3), Break::Stall));
    client.write_all(b"abc").unwrap();
    assert_eq!(&read::<3>(&mut server).unwrap(), b"abc");
    fired(&proxy);
    client.write_all(b"def").unwrap();
    server.set_read_timeout(Some(SECOND / 5)).unwrap();
    assert!(is_nothing_yet(&read::<1>(&mut server).unwrap_err()));
    server.set_read_timeout(Some(LONG)).unwrap();
    proxy.heal().unwrap();
    assert_eq!(&read::<3>(&mut server).unwrap(), b"def");
}

#[test]
fn one_way_is_lost_and_the_other_is_not() {
    let (mut client, mut server, proxy) = connected();
    let when = When::After("ask", Way::ToClient, 2);
    proxy.arm(fault(when, Break::Lose(Way::ToClient)));
    client.write_all(b"ask").unwrap();
    assert_eq!(&read::<3>(&mut server).unwrap(), b"ask");
    server.write_all(b"ok").unwrap();
    assert_eq!(&read::<2>(&mut client).unwrap(), b"ok");
    fired(&proxy);
    server.write_all(b"lost").unwrap();
    client.write_all(b"more").unwrap();
    assert_eq!(&read::<4>(&mut server).unwrap(), b"more");
    client.set_read_timeout(Some(SECOND / 5)).unwrap();
    assert!(is_nothing_yet(&read::<1>(&mut client).unwrap_err()));
    // Lost bytes do not come back.
    proxy.heal().unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    let error = read::<1>(&mut client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_fault_everywhere_is_one_of_new_connections_too() {
    let (mut client, _server, proxy) = connected();
    proxy.arm(Fault {
        is_everywhere: true,
        ..fault(When::Before("x"), Break::Reset)
    });
    client.write_all(b"x").unwrap();
    fired(&proxy);
    assert!(read::<1>(&mut connect(&proxy)).is_err());
    assert_eq!(proxy.counts().connections, 1);
}

#[test]
fn refused_connections_are_refused_until_it_is_healed() {
    let (server, proxy) = pair();
    proxy.refuse();
    let address = (Ipv4Addr::LOCALHOST, proxy.port());
    let refused = TcpStream::connect(address).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    proxy.heal().unwrap();
    connect(&proxy);
    server.accept().unwrap();
}

#[test]
fn a_delay_is_that_of_the_line_and_not_of_each_piece() {
    let (mut client, mut server, proxy) = connected();
    let delay = Duration::from_millis(100);
    proxy.set_delay(delay);
    let begin = Instant::now();
    let sent = vec![7; 1 << 20];
    let mut writes = client.try_clone().unwrap();
    let writer = std::thread::spawn(move || writes.write_all(&sent).unwrap());
    let mut received = vec![0; 1 << 20];
    server.read_exact(&mut received).unwrap();
    writer.join().unwrap();
    let one_way = begin.elapsed();
    assert!(one_way >= delay, "{one_way:?}");
    // 32 pieces or more.
    assert!(one_way < delay * 10, "{one_way:?}");
    server.write_all(b"!").unwrap();
    read::<1>(&mut client).unwrap();
    assert!(begin.elapsed() >= delay * 2);
}

fn is_nothing_yet(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
