//! A service of durable counters: an answer stays valid whatever happens to the server.
//!
//! Clients send lines: `add NAME NUMBER` returns the new count, `get NAME` the present one.
//!
//! ```sh
//! cargo run --release -p icefield --example counters                      # a server, four clients, a restart
//! cargo run --release -p icefield --example counters -- 127.0.0.1:7000 counters.ice
//! ```

use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::{env, thread};

use icefield::DashEh;

type Counters = DashEh<str, u64>;
type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let mut arguments = env::args().skip(1);
    if let (Some(address), Some(path)) = (arguments.next(), arguments.next()) {
        let counters = Counters::open_or_create(path)?;
        let listener = TcpListener::bind(address)?;
        println!("{} counters, on {}", counters.len()?, listener.local_addr()?);
        serve(&counters, &listener, usize::MAX)?;
        return Ok(());
    }

    let directory = tempfile::tempdir()?;
    let path = directory.path().join("counters.ice");
    let counters = Counters::create(&path)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(move || visit(address))).collect();
        serve(&counters, &listener, clients.len())?;
        clients.into_iter().try_for_each(|client| client.join().map_err(|_| "a client died")?)
    })?;
    drop(counters);

    let counters = Counters::open(&path)?;
    println!(
        "after a restart: home {:?}, nowhere {:?}",
        counters.get("home")?,
        counters.get("nowhere")?
    );
    assert_eq!(counters.get("home")?, Some(4000));
    Ok(())
}

/// Serves `connections` connections, each on its own thread.
fn serve(counters: &Counters, listener: &TcpListener, connections: usize) -> Result<(), Failure> {
    thread::scope(|scope| {
        for connection in listener.incoming().take(connections) {
            let connection = connection?;
            scope.spawn(move || {
                if let Err(error) = converse(counters, &connection) {
                    eprintln!("a client is given up: {error}");
                }
            });
        }
        Ok(())
    })
}

fn converse(counters: &Counters, mut connection: &TcpStream) -> io::Result<()> {
    for line in BufReader::new(connection).lines() {
        let answer = match answer(counters, &line?) {
            Ok(count) => count.to_string(),
            Err(error) => format!("error: {error}"),
        };
        connection.write_all((answer + "\n").as_bytes())?;
    }
    Ok(())
}

fn answer(counters: &Counters, line: &str) -> Result<u64, Failure> {
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        // The addition is durable when `fetch_add` returns, so a crash cannot revoke the answer to the client.
        ["add", name, number] => {
            let number = number.parse()?;
            Ok(counters.fetch_add(name, number)?.wrapping_add(number))
        }
        ["get", name] => Ok(counters.get(name)?.unwrap_or(0)),
        _ => Err("`add NAME NUMBER` or `get NAME` is wanted".into()),
    }
}

/// A client that visits a page a thousand times.
fn visit(address: SocketAddr) -> Result<(), Failure> {
    let mut connection = TcpStream::connect(address)?;
    let mut answers = BufReader::new(connection.try_clone()?).lines();
    let mut before = 0;
    for _ in 0..1000 {
        connection.write_all(b"add home 1\n")?;
        let count: u64 = answers.next().ok_or("the server has gone")??.parse()?;
        assert!(count > before, "counts only rise");
        before = count;
    }
    Ok(())
}
