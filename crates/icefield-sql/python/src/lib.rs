#![doc = include_str!("../README.md")]

mod capsule;
mod handles;
mod planner;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use ::icefield_sql::{IndexCodec, IndexRegistry, IndexRoot};
use datafusion::error::DataFusionError;
use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::proto::physical_extension_codec::FFI_PhysicalExtensionCodec;
use datafusion_ffi::query_planner::FFI_QueryPlanner;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use tokio::runtime::{Handle, Runtime};

use self::handles::{PlanHandles, TableHandles};
use self::planner::Planner;

/// Join indexes for a session: an extension for `SessionContext.with_extensions`.
#[pyclass(frozen, module = "icefield_sql")]
struct Indexes {
    registry: IndexRegistry,
}

#[pymethods]
impl Indexes {
    /// Opens the indexes in these directories, which `icefield-sql build-index` has made.
    #[new]
    #[pyo3(signature = (*paths, allow_stale = false))]
    fn new(paths: Vec<PathBuf>, allow_stale: bool) -> PyResult<Self> {
        let registry = IndexRegistry::default();
        for path in paths {
            let index = registry.open(&path, allow_stale).map_err(raised)?;
            // Plans name it.
            root().and_then(|root| root.reference(&index)).map_err(raised)?;
        }
        Ok(Self { registry })
    }

    /// Returns why the joins that were planned since the last call use an index or none, one line for each join.
    fn decisions(&self) -> Vec<String> {
        self.registry.take_decisions()
    }

    fn __datafusion_session_components__<'py>(
        &self,
        context: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let python = context.py();
        let codec = Py::new(python, Codec { registry: self.registry.clone() })?;
        let options = PyDict::new(python);
        options.set_item("logical_extension_codecs", (codec.clone_ref(python),))?;
        options.set_item("physical_extension_codecs", (codec,))?;
        let components = python.import("datafusion")?.getattr("SessionExtensionComponents")?;
        components.call((), Some(&options))
    }

    fn __datafusion_session_planner__(
        &self,
        _context: &Bound<'_, PyAny>,
        fallback: &Bound<'_, PyCapsule>,
    ) -> PyResult<PlannerCapsule> {
        let fallback = capsule::query_planner(fallback)?;
        let planner = Planner::new(self.registry.clone(), (&fallback).into(), runtime()?);
        Ok(PlannerCapsule { planner: Arc::new(planner) })
    }

    fn __repr__(&self) -> String {
        let paths: Vec<_> = self
            .registry
            .indexes()
            .iter()
            .map(|index| format!("{:?}", index.path().display().to_string()))
            .collect();
        format!("Indexes({})", paths.join(", "))
    }
}

/// Codecs for the operators of index joins, and for objects that have no bytes.
#[pyclass(frozen, module = "icefield_sql")]
struct Codec {
    registry: IndexRegistry,
}

#[pymethods]
impl Codec {
    #[classattr]
    fn __datafusion_codec_id__() -> &'static str {
        "icefield_sql.1"
    }

    fn __datafusion_logical_extension_codec__<'py>(
        &self,
        session: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let provider = capsule::task_context_provider(session)?;
        let codec =
            FFI_LogicalExtensionCodec::new(Arc::new(TableHandles), Some(runtime()?), provider);
        PyCapsule::new_with_value(session.py(), codec, capsule::LOGICAL_CODEC)
    }

    fn __datafusion_physical_extension_codec__<'py>(
        &self,
        session: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let root = root().map_err(raised)?;
        // A plan is executed with the index with which it was planned, even if another one has taken its place.
        self.registry.indexes().into_iter().for_each(|index| root.add(index));
        let codec = IndexCodec::new(root, Arc::new(PlanHandles));
        let provider = capsule::task_context_provider(session)?;
        let codec = FFI_PhysicalExtensionCodec::new(Arc::new(codec), Some(runtime()?), provider);
        PyCapsule::new_with_value(session.py(), codec, capsule::PHYSICAL_CODEC)
    }
}

/// The planner, for the session on which it is installed.
#[pyclass(frozen, module = "icefield_sql")]
struct PlannerCapsule {
    planner: Arc<Planner>,
}

#[pymethods]
impl PlannerCapsule {
    fn __datafusion_query_planner__<'py>(
        &self,
        session: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let planner = FFI_QueryPlanner::new_with_ffi_codecs(
            Arc::clone(&self.planner) as _,
            capsule::logical_codec(session)?,
            capsule::physical_codec(session)?,
        );
        PyCapsule::new_with_value(session.py(), planner, capsule::QUERY_PLANNER)
    }
}

/// Returns the root of all indexes: the program reads any index that its user can read.
fn root() -> Result<IndexRoot, DataFusionError> {
    IndexRoot::new("/".as_ref(), true)
}

fn raised(error: DataFusionError) -> PyErr {
    PyRuntimeError::new_err(error.strip_backtrace())
}

/// Returns the threads that read files while a query is planned.
fn runtime() -> PyResult<Handle> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime.handle().clone());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    Ok(RUNTIME.get_or_init(|| runtime).handle().clone())
}

#[pymodule]
fn icefield_sql(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Indexes>()
}
