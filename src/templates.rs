//! The templates of plugins, as people look at them before anything is sent.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_sdk::{Plugin, Rendered, Template, TemplateError};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::plugins::BadPlugin;

/// The templates of some plugins.
#[derive(Clone, Default)]
pub(crate) struct Templates(Vec<(&'static str, Template)>);

/// A template filled with its sample, or with other values.
#[derive(Debug, Serialize)]
pub(crate) struct Preview {
    pub(crate) plugin: &'static str,
    pub(crate) slug: &'static str,
    /// What it is filled with.
    pub(crate) values: Map<String, Value>,
    #[serde(flatten)]
    pub(crate) rendered: Rendered,
}

impl Templates {
    /// Those of these plugins.
    ///
    /// # Errors
    /// When one cannot be filled with its own sample, or has the name of another.
    pub(crate) fn of(plugins: &[Arc<dyn Plugin>]) -> Result<Self, BadPlugin> {
        let mut templates = Vec::new();
        for plugin in plugins {
            let mut slugs = BTreeSet::new();
            for template in plugin.templates() {
                let refused = |error: String| BadPlugin::Template { plugin: plugin.name(), error };
                template.preview().map_err(|error| refused(error.to_string()))?;
                if !slugs.insert(template.slug) {
                    return Err(refused(format!("it has two templates {}", template.slug)));
                }
                templates.push((plugin.name(), template));
            }
        }
        Ok(Self(templates))
    }

    /// Each filled with its sample.
    ///
    /// # Errors
    /// When one cannot be.
    pub(crate) fn previews(&self) -> Result<Vec<Preview>, TemplateError> {
        self.0.iter().map(|(plugin, template)| preview(plugin, template, template.sample_values()?)).collect()
    }

    /// One of that name, or of `plugin/name`, filled with these values, or with its sample.
    ///
    /// # Errors
    /// When there is none, or the values do not fit.
    pub(crate) fn preview(&self, name: &str, values: Option<Map<String, Value>>) -> Result<Preview, TemplateError> {
        let is_meant = |(plugin, template): &&(&str, Template)| match name.split_once('/') {
            Some((of, slug)) => *plugin == of && template.slug == slug,
            None => template.slug == name,
        };
        let found = self.0.iter().find(is_meant).ok_or_else(|| TemplateError::Unknown(name.to_owned()))?;
        let (plugin, template) = found;
        preview(plugin, template, values.map_or_else(|| template.sample_values(), Ok)?)
    }
}

fn preview(plugin: &'static str, template: &Template, values: Map<String, Value>) -> Result<Preview, TemplateError> {
    let rendered = template.render(&values)?;
    Ok(Preview { plugin, slug: template.slug, values, rendered })
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A plugin that has these templates.
    pub(crate) struct Letters(pub(crate) &'static str, pub(crate) Vec<Template>);

    impl Plugin for Letters {
        fn name(&self) -> &'static str {
            self.0
        }

        fn handlers(&self) -> Vec<(&'static str, Box<dyn punctual_sdk::Handler>)> {
            Vec::new()
        }

        fn templates(&self) -> Vec<Template> {
            self.1.clone()
        }
    }

    pub(crate) const HELLO: Template = Template {
        slug: "hello",
        subject: "Hello, {{ name }}",
        text: "How are you, {{ name }}?",
        html: Some("<p>How are you, {{ name }}?</p>"),
        sample: r#"{"name": "Ada"}"#,
    };

    fn of(plugins: Vec<Letters>) -> Result<Templates, BadPlugin> {
        let plugins: Vec<Arc<dyn Plugin>> = plugins.into_iter().map(|plugin| Arc::new(plugin) as _).collect();
        Templates::of(&plugins)
    }

    #[test]
    fn a_template_is_shown_with_its_sample_or_with_other_values() {
        let templates =
            of(vec![Letters("a", vec![HELLO]), Letters("b", vec![Template { text: "b", ..HELLO }])]).unwrap();
        let shown = templates.preview("hello", None).unwrap();
        assert_eq!((shown.plugin, shown.rendered.subject.as_str()), ("a", "Hello, Ada"));
        assert_eq!(templates.preview("b/hello", None).unwrap().rendered.text, "b");
        let values = json!({"name": "<Bob>"}).as_object().cloned();
        let html = templates.preview("a/hello", values).unwrap().rendered.html;
        assert_eq!(html.as_deref(), Some("<p>How are you, &lt;Bob&gt;?</p>"));
        assert_eq!(templates.preview("c/hello", None).unwrap_err().to_string(), "there is no template c/hello");
        assert_eq!(templates.previews().unwrap().len(), 2);
    }

    #[test]
    fn ours_are_html_too_with_what_fills_them_escaped_but_one_that_is_plain_on_purpose() {
        let ours = crate::plugins::Plugins::with(Vec::new()).unwrap();
        let templates = Templates::of(ours.all()).unwrap();
        for sample in templates.previews().unwrap() {
            let values = sample.values.into_iter().map(|(name, _)| (name, json!("<i>&"))).collect();
            let filled = templates.preview(sample.slug, Some(values)).unwrap().rendered;
            assert!(filled.text.contains("<i>&"), "{}", sample.slug);
            match filled.html {
                Some(html) => assert!(html.contains("&lt;i&gt;&amp;") && !html.contains("<i>"), "{html}"),
                None => assert_eq!(sample.slug, "clearpath-cnrpp-alert"),
            }
        }
    }

    #[test]
    fn a_plugin_with_a_broken_template_is_refused() {
        for (templates, error) in [
            (vec![Template { sample: "{}", ..HELLO }], "the template hello needs a value for name"),
            (vec![HELLO, HELLO], "it has two templates hello"),
        ] {
            let refused = of(vec![Letters("a", templates)]).err().unwrap().to_string();
            assert_eq!(refused, format!("the plugin a cannot be used: {error}"));
        }
    }
}
