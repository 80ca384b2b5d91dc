//! Compiles the shims of the engines that were asked for, and links their libraries.

fn main() {
    println!("cargo::rerun-if-changed=src/shim.h");
    for (feature, library) in [("BERKELEYDB", "db"), ("WIREDTIGER", "wiredtiger")] {
        if std::env::var_os(format!("CARGO_FEATURE_{feature}")).is_none() {
            continue;
        }
        let name = feature.to_lowercase();
        let file = format!("src/{name}.c");
        println!("cargo::rerun-if-changed={file}");
        cc::Build::new()
            .file(file)
            .warnings(true)
            .extra_warnings(true)
            .compile(&format!("peers_{name}"));
        println!("cargo::rustc-link-lib={library}");
    }
}
