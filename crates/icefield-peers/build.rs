//! Compiles the C++ peers, when they are asked for, against what is installed.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "cpp")]
    cpp::build();
}

#[cfg(feature = "cpp")]
mod cpp {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// A C++ table that is compiled against what is installed.
    struct Shim {
        name: &'static str,
        /// Debian's package of it.
        package: &'static str,
        /// What it is linked with, if it is not headers alone; `pkg-config` knows it by the same name.
        library: Option<&'static str>,
        /// Names the directory where it is, should that not be a usual one.
        variable: &'static str,
    }

    const SHIMS: [Shim; 2] = [
        Shim {
            name: "libcuckoo",
            package: "libcuckoo-dev",
            library: None,
            variable: "ICEFIELD_LIBCUCKOO_DIR",
        },
        Shim {
            name: "onetbb",
            package: "libtbb-dev",
            library: Some("tbb"),
            variable: "ICEFIELD_TBB_DIR",
        },
    ];

    /// The functions of `icefield_peer.h`, which each shim gets under names of its own.
    const FUNCTIONS: [&str; 7] =
        ["create", "destroy", "insert", "get", "update", "remove", "insdel"];

    pub fn build() {
        println!("cargo::rerun-if-changed=cpp");
        println!("cargo::rerun-if-changed=icefield_peer.h");
        SHIMS.iter().for_each(Shim::build);
    }

    impl Shim {
        fn build(&self) {
            let Self { name, package, library, variable } = self;
            println!("cargo::rerun-if-env-changed={variable}");
            let (headers, libraries) = self.places();
            let mut shim = cc::Build::new();
            shim.cpp(true).std("c++17").opt_level(3).include(".").includes(headers);
            shim.file(format!("cpp/{name}.cpp"));
            for function in FUNCTIONS {
                let own = format!("icefield_peer_{name}_{function}");
                shim.define(&format!("icefield_peer_{function}"), own.as_str());
            }
            if let Err(error) = shim.try_compile(&format!("icefield_peer_{name}")) {
                println!(
                    "cargo::error=the feature `cpp` needs a C++ compiler and {name}: install {package} (apt-get \
                     install g++ {package}), or say in {variable} in which directory it is, or build without the \
                     feature: {error}"
                );
            }
            for place in libraries {
                println!("cargo::rustc-link-search=native={}", place.display());
            }
            if let Some(library) = library {
                println!("cargo::rustc-link-lib={library}");
            }
        }

        /// Where its headers and libraries are, beside the usual places.
        fn places(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
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
            // Without an answer there are the usual places.
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
    }
}
