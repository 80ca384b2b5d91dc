//! Tests of the workloads of a server.

use std::time::Duration;

use pando_bench::resp::run;
use pando_bench::{Error, RespOptions, RespWorkload};
use pando_server::{Server, ServerOptions};
use pandodb::{Db, IoBackend};

use crate::notes::Notes;

fn tiny() -> RespOptions {
    RespOptions {
        workloads: RespWorkload::ALL.to_vec(),
        num: 2000,
        clients: 5,
        max_memory: 16 << 20,
        io_backend: IoBackend::Memory,
        ..RespOptions::default()
    }
}

#[test]
fn every_workload_gets_its_answers() {
    for (threads, pipeline) in [(1, 1), (2, 16), (3, 100)] {
        let options = RespOptions {
            threads,
            pipeline,
            ..tiny()
        };
        let notes = Notes::of(|notes| run(&options, notes));
        for (record, workload) in notes.records.iter().zip(RespWorkload::ALL) {
            assert_eq!(record.workload, workload.name());
            assert_eq!(record.ops, 2000, "{record:?}");
            let reads = ["get", "mget"].contains(&record.workload);
            assert_eq!(record.found, reads.then_some(2000), "{record:?}");
            assert_eq!(record.io_backend.as_deref(), Some("memory"));
            assert_eq!(record.max_memory, Some(16 << 20));
            assert_eq!(record.pipeline, Some(pipeline));
            assert!(record.server.as_ref().unwrap().starts_with("pando "));
            assert!(record.ops_per_s > 0.0 && record.p50_us > 0.0);
        }
    }
}

#[test]
fn a_server_that_runs_is_used_and_left_running() {
    let server = Server::bind(ServerOptions {
        listen: vec![([127, 0, 0, 1], 0).into()],
        threads: 1,
        ..ServerOptions::default()
    })
    .unwrap();
    let (port, handle) = (server.addresses()[0].port(), server.handle());
    let serve = || server.serve(|| Db::builder().max_memory(16 << 20).open_in_memory());
    let thread = pando_sync::thread::spawn(serve);
    let mut options = RespOptions {
        host: Some("127.0.0.1".to_owned()),
        port,
        workloads: vec![RespWorkload::Get],
        ..tiny()
    };
    options.use_existing_db = true;
    let notes = Notes::of(|notes| run(&options, notes));
    assert_eq!(
        notes.records[0].found,
        Some(0),
        "nothing has filled the store"
    );
    options.use_existing_db = false;
    let notes = Notes::of(|notes| run(&options, notes));
    assert_eq!(notes.records[0].found, Some(2000));
    assert!(notes.records[0].server_cpu_us_per_op.is_some());
    // Values depend on the seed, so values of another seed are wrong.
    options.use_existing_db = true;
    options.seed = 2;
    let error = run(&options, &mut Notes::default()).unwrap_err();
    assert!(matches!(error, Error::Wrong { .. }), "{error}");
    assert!(handle.is_serving());
    handle.shutdown();
    thread.join().unwrap().unwrap();
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let options = RespOptions {
        workloads: vec![RespWorkload::Mixed],
        duration: Some(Duration::from_millis(300)),
        warmup: Duration::from_millis(30),
        interval: Some(Duration::from_millis(50)),
        rate: Some(2000.0),
        pipeline: 4,
        threads: 2,
        ..tiny()
    };
    let notes = Notes::of(|notes| run(&options, notes));
    assert!(notes.steps >= 2);
    let ops = notes.records[0].ops;
    assert!((100..=800).contains(&ops), "{ops}");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let wrong: [fn(&mut RespOptions); 5] = [
        |options| options.clients = 0,
        |options| options.pipeline = 0,
        |options| options.threads = 6,
        |options| options.rate = Some(-1.0),
        |options| {
            options.host = Some("localhost".to_owned());
            options.dir = Some("x".into());
        },
    ];
    for change in wrong {
        let mut options = tiny();
        change(&mut options);
        let error = run(&options, &mut Notes::default()).unwrap_err();
        assert!(matches!(error, Error::Option { .. }), "{error}");
    }
}
