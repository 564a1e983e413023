//! Compiles the C++ peers, when they are asked for, against what is installed.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "cpp")]
    cpp::build();
}

#[cfg(feature = "cpp")]
mod cpp {
    /// The name of a shim, what its compilation needs, and what to link with it.
    const SHIMS: [(&str, &str, Option<&str>); 2] =
        [("libcuckoo", "libcuckoo-dev", None), ("onetbb", "libtbb-dev", Some("tbb"))];

    /// The functions of `icefield_peer.h`, which each shim gets under names of its own.
    const FUNCTIONS: [&str; 7] =
        ["create", "destroy", "insert", "get", "update", "remove", "insdel"];

    pub fn build() {
        println!("cargo::rerun-if-changed=cpp");
        println!("cargo::rerun-if-changed=icefield_peer.h");
        for (name, package, library) in SHIMS {
            let mut shim = cc::Build::new();
            shim.cpp(true).std("c++17").opt_level(3).include(".").file(format!("cpp/{name}.cpp"));
            for function in FUNCTIONS {
                let own = format!("icefield_peer_{name}_{function}");
                shim.define(&format!("icefield_peer_{function}"), own.as_str());
            }
            if let Err(error) = shim.try_compile(&format!("icefield_peer_{name}")) {
                println!(
                    "cargo::error=the feature `cpp` needs a C++ compiler and {name}: install {package} (apt-get install g++ \
                     {package}), or build without it: {error}"
                );
            }
            if let Some(library) = library {
                println!("cargo::rustc-link-lib={library}");
            }
        }
    }
}
