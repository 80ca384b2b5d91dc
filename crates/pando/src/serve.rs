//! `pando serve`: opens the directory, listens, reports where, and shuts down in order when told
//! to.

use std::net::SocketAddr;
use std::path::Path;

use pando_server::{Handle, Server, ServerOptions};
use pando_sync::thread;
use pando_sync::time::Duration;
use pandodb::{Builder, Compression, Db, RecoveryProgress, Report};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::command_line::ServeFlags;
use crate::failure::{Code, Failure};
use crate::layers::Layers;
use crate::log;
use crate::output;
use crate::progress::Progress;
use crate::quantity::{show_size, whole};
use crate::redis;
use crate::rewrite;
use crate::settings::Settings;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Serves until a signal or SHUTDOWN stops the server.
pub(crate) fn run(flags: &ServeFlags, as_redis: &redis::Given) -> Result<(), Failure> {
    let environment =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let is_redis = as_redis.file.is_some() || as_redis.reads_input;
    let layers = if is_redis || flags.config.is_none() {
        if flags.config.is_some() {
            return Err(Failure::usage(
                "there is a redis.conf and --config: one is enough",
            ));
        }
        // What came through standard input has no name, and CONFIG REWRITE no file.
        let file = is_redis.then(|| as_redis.file.as_deref().unwrap_or_default());
        Layers::read_as_redis(file, redis::read(as_redis)?, environment, flags.given())?
    } else {
        let (_, of_flags) = redis::read(as_redis)?;
        let mut layers = Layers::read(flags.config.as_deref(), environment, Vec::new())?;
        layers.add_meaning(of_flags);
        layers.add_flags(flags.given());
        layers
    };
    let settings = Settings::new(&layers)?;
    let signals = take_signals()?;
    let log_level_setter = log::start(
        settings.log_level,
        settings.log_format,
        settings.log_file.as_deref(),
    )?;
    tracing::info!(
        version = VERSION,
        pid = std::process::id(),
        "the server starts"
    );
    for note in &settings.notes {
        tracing::warn!("{note}");
    }
    let server = Server::bind(ServerOptions {
        log_level_setter: Some(log_level_setter),
        on_ready: Some(report_ready),
        ..server_options(&settings)
    })?;
    answer_signals(signals, server.handle())?;
    let texts = |addresses: &[SocketAddr]| addresses.iter().map(ToString::to_string).collect();
    let mut addresses: Vec<String> = texts(server.addresses());
    addresses.extend(
        settings
            .unix_socket
            .iter()
            .map(|path| path.display().to_string()),
    );
    let metrics: Vec<String> = texts(server.metrics_addresses());
    let builder = builder(&settings).on_recovery(show_recovery());
    server.serve(move || {
        let db = builder.open(&settings.dir)?;
        report(&db, &settings, &addresses, &metrics);
        Ok(db)
    })?;
    Ok(())
}

fn server_options(settings: &Settings) -> ServerOptions {
    let default = ServerOptions::default();
    let dir = std::path::absolute(&settings.dir).unwrap_or_else(|_| settings.dir.clone());
    ServerOptions {
        listen: settings.listen.clone(),
        unix_socket: settings.unix_socket.clone(),
        unix_socket_mode: settings.unix_socket_mode,
        metrics_listen: settings.metrics_listen.clone(),
        threads: settings.threads,
        requirepass: settings.requirepass.clone(),
        durability: settings.durability,
        periodic_ms: settings.periodic_ms,
        tcp_keepalive_s: settings.tcp_keepalive_s,
        stall_timeout: Duration::from_secs(settings.stall_timeout_s),
        dir: dir.display().to_string(),
        config_file: settings.config_file.clone(),
        config_rewriter: rewrite::rewriter(&settings.config_file, settings.is_redis),
        parameters: settings.parameters.clone(),
        log_level: settings.log_level,
        debug_commands: settings.debug_commands,
        maxclients: settings.maxclients.unwrap_or(default.maxclients),
        version: VERSION.to_owned(),
        ..default
    }
}

fn builder(settings: &Settings) -> Builder {
    let mut builder = Db::builder()
        .max_memory(settings.max_memory)
        .durability(settings.durability.of_engine())
        .periodic(Duration::from_millis(settings.periodic_ms))
        .io_backend(settings.io_backend);
    if let Some(bytes) = settings.page_size {
        builder = builder.page_size(bytes);
    }
    if let Some(bytes) = settings.block_size {
        builder = builder.block_size(bytes);
    }
    if let Some(compression) = settings.compression {
        builder = builder.compression(compression);
    }
    if let Some(reads) = settings.queue_depth {
        builder = builder.queue_depth(reads);
    }
    if let Some(threads) = settings.completion_threads {
        builder = builder.completion_threads(threads);
    }
    builder
}

/// Shows the progress of log replay: a bar, or a log line every ten seconds.
fn show_recovery() -> impl FnMut(RecoveryProgress) + Send + 'static {
    let mut shown: Option<Progress> = None;
    move |now| {
        let progress = shown.get_or_insert_with(|| {
            Progress::told(|what, share| {
                let percent = whole(share * 100.0);
                tracing::info!(percent, "{what}");
            })
        });
        let (done, all) = (now.replayed_bytes, now.log_bytes);
        let what = format!("log replayed: {} of {}", show_size(done), show_size(all));
        progress.update(&what, done as f64 / all.max(1) as f64);
        if done >= all {
            progress.finish();
        }
    }
}

fn no_signals(error: std::io::Error) -> Failure {
    Failure::new(Code::Io, format!("signals: {error}"))
}

/// Takes over the signals that would end the process.
fn take_signals() -> Result<Signals, Failure> {
    Signals::new([SIGHUP, SIGINT, SIGTERM, SIGXFSZ]).map_err(no_signals)
}

/// Waits for signals in a thread. SIGINT and SIGTERM shut the server down. SIGHUP, which comes when
/// a terminal closes and from tools that rotate logs, does nothing. Nor does SIGXFSZ, which comes
/// with each write beyond the limit of a file's length: the store takes that for a full disk, and
/// says so.
fn answer_signals(mut signals: Signals, handle: Handle) -> Result<(), Failure> {
    let wait = move || {
        for signal in signals.forever() {
            if signal == SIGXFSZ {
                continue;
            }
            if signal == SIGHUP {
                tracing::info!(signal, "a signal that changes nothing");
                continue;
            }
            tracing::info!(signal, "told to stop");
            handle.shutdown();
        }
    };
    thread::Builder::new()
        .name("pando-signals".to_owned())
        .spawn(wait)
        .map_err(no_signals)?;
    Ok(())
}

/// Reports what is served, and how to reach it.
fn report(db: &Db, settings: &Settings, addresses: &[String], metrics: &[String]) {
    let engine = db.report();
    let dir = Path::canonicalize(&settings.dir).unwrap_or_else(|_| settings.dir.clone());
    output::line(format_args!("PandoDB {VERSION} is ready."));
    output::line(format_args!("  address     {}", addresses.join(", ")));
    for address in metrics {
        output::line(format_args!("  metrics     http://{address}/metrics"));
        output::line(format_args!("  dashboard   http://{address}/"));
    }
    output::line(format_args!("  directory   {}", dir.display()));
    let from = match settings.max_memory_is_default {
        true => " (half of what there is; --max-memory changes it)",
        false => "",
    };
    output::line(format_args!(
        "  memory      {}{from}",
        show_size(engine.max_memory)
    ));
    output::line(format_args!("  I/O         {}", io_line(&engine)));
    for note in &engine.io_notes {
        output::line(format_args!("              {note}"));
    }
    if engine.compression != Compression::None {
        output::line(format_args!("  compression {}", compression_line(&engine)));
    }
    output::line(format_args!("  durability  {}", durability_line(settings)));
    output::line(format_args!(
        "  recovery    in {} ms, {} batches replayed, {} of log",
        engine.recovery_ms,
        engine.recovery_batches,
        show_size(engine.recovery_log_bytes)
    ));
    if let Some(address) = addresses.first()
        && let Some((host, port)) = address.rsplit_once(':')
    {
        let host = host.trim_matches(['[', ']']);
        let auth = if settings.requirepass.is_some() {
            " --askpass"
        } else {
            ""
        };
        output::line(format_args!(
            "Connect with: redis-cli -h {host} -p {port}{auth}"
        ));
    }
}

/// Ends the report. Programs that start a server, in a container or as a child, wait for these
/// words of redis-server's standard output, some of them with the blank in front.
fn report_ready() {
    let id = std::process::id();
    output::line(format_args!("{id}:M * Ready to accept connections"));
}

fn io_line(engine: &Report) -> String {
    let cache = match (engine.direct_io, engine.direct_log) {
        (true, true) => "past the page cache",
        (true, false) => "pages past the page cache, the log through it",
        (false, _) => "through the page cache (the file system has no direct I/O)",
    };
    let alignment = match engine.direct_io {
        true => format!(" in multiples of {}", engine.io_alignment),
        false => String::new(),
    };
    format!(
        "{}, {cache}{alignment}, pages of {} bytes, {} reads in flight for each loop",
        engine.io_backend, engine.page_size, engine.queue_depth
    )
}

fn compression_line(engine: &Report) -> String {
    let Report {
        compression,
        page_size,
        block_size,
        ..
    } = engine;
    let effect = match page_size > block_size {
        true => "",
        false => ", without effect: a page is one block, which the creation of a store decides",
    };
    format!("{compression}, in blocks of {block_size} bytes{effect}")
}

fn durability_line(settings: &Settings) -> String {
    match settings.durability {
        pando_server::Durability::Durable => "durable: a reply means on disk".to_owned(),
        pando_server::Durability::Periodic => format!(
            "periodic: a crash may lose the last {} ms",
            settings.periodic_ms
        ),
        pando_server::Durability::None => {
            "none: a crash may lose everything since the last checkpoint".to_owned()
        }
    }
}
