//! Records as one page for a browser: tables and charts, nothing from elsewhere.
//!
//! Reading order: `page` (what is on it), `table` (which fields are figures and which settings),
//! `chart` (axes and lines, as SVG), `escape`. The page is well-formed XML, too; every text that
//! is not written here goes through `escape`.

mod chart;
mod escape;
mod page;
mod table;

pub use page::page;
