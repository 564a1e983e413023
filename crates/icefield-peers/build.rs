//! Compiles the C++ peers against installed libraries and finds an installed RocksDB, if the features `cpp` and `kv`
//! are enabled.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "cpp")]
    cpp::build();
    #[cfg(feature = "kv")]
    kv::build();
}

/// Libraries that are installed in the system or in a directory.
#[cfg(any(feature = "cpp", feature = "kv"))]
mod installed {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    pub struct Installed {
        /// The name of Debian's package.
        pub package: &'static str,
        /// The name of the library for the linker and for `pkg-config`; `None` if there are only headers to install.
        pub library: Option<&'static str>,
        /// The environment variable that names the library's directory, if it is not in a usual place.
        pub variable: &'static str,
    }

    impl Installed {
        /// Returns the directories to search for the headers and for the library, in addition to the usual ones.
        pub fn places(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
            println!("cargo::rerun-if-env-changed={}", self.variable);
            if let Some(dir) = std::env::var_os(self.variable) {
                let dir = Path::new(&dir);
                return (
                    vec![dir.join("include"), dir.to_owned()],
                    vec![dir.join("lib"), dir.to_owned()],
                );
            }
            let asked = self.library.and_then(|library| {
                Command::new("pkg-config")
                    .args(["--cflags-only-I", "--libs-only-L", library])
                    .output()
                    .ok()
            });
            // If `pkg-config` returns no flags, only the usual directories are searched.
            let flags = asked.map(|asked| String::from_utf8_lossy(&asked.stdout).into_owned());
            let flags = flags.unwrap_or_default();
            let all = |flag: &str| {
                flags
                    .split_whitespace()
                    .filter_map(|word| word.strip_prefix(flag))
                    .map(PathBuf::from)
                    .collect()
            };
            (all("-I"), all("-L"))
        }

        /// Links with the library.
        pub fn link(&self, libraries: &[PathBuf]) {
            for place in libraries {
                println!("cargo::rustc-link-search=native={}", place.display());
            }
            if let Some(library) = self.library {
                println!("cargo::rustc-link-lib={library}");
            }
        }
    }
}

#[cfg(feature = "cpp")]
mod cpp {
    use super::installed::Installed;

    /// A C++ table that is compiled against an installed library.
    struct Shim {
        name: &'static str,
        installed: Installed,
    }

    const SHIMS: [Shim; 2] = [
        Shim {
            name: "libcuckoo",
            installed: Installed {
                package: "libcuckoo-dev",
                library: None,
                variable: "ICEFIELD_LIBCUCKOO_DIR",
            },
        },
        Shim {
            name: "onetbb",
            installed: Installed {
                package: "libtbb-dev",
                library: Some("tbb"),
                variable: "ICEFIELD_TBB_DIR",
            },
        },
    ];

    /// The functions of `icefield_peer.h`, which each shim exports with its own prefix.
    const FUNCTIONS: [&str; 7] =
        ["create", "destroy", "insert", "get", "update", "remove", "insdel"];

    pub fn build() {
        println!("cargo::rerun-if-changed=cpp");
        println!("cargo::rerun-if-changed=icefield_peer.h");
        SHIMS.iter().for_each(Shim::build);
    }

    impl Shim {
        fn build(&self) {
            let Self { name, installed } = self;
            let (headers, libraries) = installed.places();
            let mut shim = cc::Build::new();
            shim.cpp(true).std("c++17").opt_level(3).include(".").includes(headers);
            shim.file(format!("cpp/{name}.cpp"));
            for function in FUNCTIONS {
                let own = format!("icefield_peer_{name}_{function}");
                shim.define(&format!("icefield_peer_{function}"), own.as_str());
            }
            if let Err(error) = shim.try_compile(&format!("icefield_peer_{name}")) {
                let Installed { package, variable, .. } = installed;
                println!(
                    "cargo::error=the feature `cpp` needs a C++ compiler and {name}: install {package} (apt-get \
                     install g++ {package}), or set {variable} to its directory, or build without the feature: {error}"
                );
            }
            installed.link(&libraries);
        }
    }
}

#[cfg(feature = "kv")]
mod kv {
    use super::installed::Installed;

    const ROCKSDB: Installed = Installed {
        package: "librocksdb-dev",
        library: Some("rocksdb"),
        variable: "ICEFIELD_ROCKSDB_DIR",
    };

    /// RocksDB's header is preprocessed only to check that RocksDB is installed: its functions are declared in
    /// `src/kv/rocksdb_c.rs`.
    pub fn build() {
        println!("cargo::rerun-if-changed=src/kv/rocksdb.c");
        let (headers, libraries) = ROCKSDB.places();
        let header = cc::Build::new().file("src/kv/rocksdb.c").includes(headers).try_expand();
        if let Err(error) = header {
            let Installed { package, variable, .. } = ROCKSDB;
            println!(
                "cargo::error=the feature `kv` needs a C compiler and RocksDB: install {package} (apt-get install gcc \
                 {package}), or set {variable} to its directory, or build without the feature: {error}"
            );
        }
        ROCKSDB.link(&libraries);
    }
}
