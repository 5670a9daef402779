//! `version`: what this program is.

use serde_json::json;

use crate::error::Error;
use crate::list::Form;

/// The text of `version`: lines, or an object.
pub fn text(version: &str, form: Form) -> Result<String, Error> {
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    let object = json!({"apiVersion": "v1alpha1", "version": version, "platform": platform});
    let failed = |form, detail| Error::Written { what: "the version".to_owned(), form, detail };
    match form {
        Form::Json => serde_json::to_string_pretty(&object)
            .map(|text| format!("{text}\n"))
            .map_err(|error| failed("JSON", error.to_string())),
        Form::Yaml => serde_saphyr::to_string(&object).map_err(|error| failed("YAML", error.to_string())),
        Form::Name => Ok(format!("{version}\n")),
        Form::Table | Form::Wide => Ok(format!("API Version: v1alpha1\nVersion: {version}\nOS/Arch: {platform}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_names_the_version() {
        for form in [Form::Table, Form::Wide, Form::Json, Form::Yaml, Form::Name] {
            let text = text("1.2.3", form).unwrap();
            assert!(text.contains("1.2.3") && text.ends_with('\n'), "{form:?}: {text}");
        }
        assert!(text("1.2.3", Form::Table).unwrap().starts_with("API Version: v1alpha1\nVersion: 1.2.3\nOS/Arch: "));
    }
}
