//! The values in the capsules of DataFusion for Python.

use std::ffi::CStr;

use datafusion_ffi::execution::FFI_TaskContextProvider;
use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::proto::physical_extension_codec::FFI_PhysicalExtensionCodec;
use datafusion_ffi::query_planner::FFI_QueryPlanner;
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// The name of a capsule with a query planner.
pub const QUERY_PLANNER: &CStr = c"datafusion_query_planner";
/// The name of a capsule with a codec of logical plans.
pub const LOGICAL_CODEC: &CStr = c"datafusion_logical_extension_codec";
/// The name of a capsule with a codec of physical plans.
pub const PHYSICAL_CODEC: &CStr = c"datafusion_physical_extension_codec";

/// The name of a capsule with the functions of a session.
const TASK_CONTEXT: &CStr = c"datafusion_task_context_provider";

/// Returns a copy of the planner in a capsule.
pub fn query_planner(capsule: &Bound<'_, PyCapsule>) -> PyResult<FFI_QueryPlanner> {
    // SAFETY: this is the name of capsules with planners.
    unsafe { copied(capsule, QUERY_PLANNER) }
}

/// Returns the codec of logical plans of a session.
pub fn logical_codec(session: &Bound<'_, PyAny>) -> PyResult<FFI_LogicalExtensionCodec> {
    let capsule = session.call_method0("__datafusion_logical_extension_codec__")?;
    // SAFETY: this is the name of capsules with codecs of logical plans.
    unsafe { copied(capsule.cast()?, LOGICAL_CODEC) }
}

/// Returns the codec of physical plans of a session.
pub fn physical_codec(session: &Bound<'_, PyAny>) -> PyResult<FFI_PhysicalExtensionCodec> {
    let capsule = session.call_method0("__datafusion_physical_extension_codec__")?;
    // SAFETY: this is the name of capsules with codecs of physical plans.
    unsafe { copied(capsule.cast()?, PHYSICAL_CODEC) }
}

/// Returns what gives the functions of a session.
pub fn task_context_provider(session: &Bound<'_, PyAny>) -> PyResult<FFI_TaskContextProvider> {
    let capsule = session.call_method0("__datafusion_task_context_provider__")?;
    // SAFETY: this is the name of capsules with such providers.
    unsafe { copied(capsule.cast()?, TASK_CONTEXT) }
}

/// Returns a copy of the value in a capsule of this name.
///
/// # Safety
/// Capsules of this name must have a value of type `T`, in the version of DataFusion of this library.
unsafe fn copied<T: Clone>(capsule: &Bound<'_, PyCapsule>, name: &CStr) -> PyResult<T> {
    // Capsules of another major version may have another layout.
    let package = capsule.py().import("datafusion")?.getattr("__version__")?;
    same_version(&package.extract::<String>()?)?;
    let value = capsule.pointer_checked(Some(name))?.cast::<T>();
    // SAFETY: the capsule has this name, so by the condition on callers it has such a value, for as long as it exists.
    Ok(unsafe { value.as_ref() }.clone())
}

/// Returns an error unless the package with this version can exchange capsules with this library.
fn same_version(package: &str) -> PyResult<()> {
    let ours = datafusion_ffi::version();
    if package.split('.').next() == Some(&ours.to_string()) {
        return Ok(());
    }
    Err(PyImportError::new_err(format!(
        "icefield_sql was built for version {ours} of the package datafusion, and this is version {package}"
    )))
}
