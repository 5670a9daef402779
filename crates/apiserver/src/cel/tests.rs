//! Expressions that are no rules: computed variables, a spent budget, sources that would stop a careless compiler.

use serde_json::json;

use super::*;

#[test]
fn computed_variables_are_named_and_read() {
    let scope = Scope(vec![Variable::computed("variables", vec!["n".to_owned()])]);
    let expression = Expression::compile("variables.n > 1", &scope, Wanted::Bool).expect("compiles");
    assert!(expression.reads("variables.n"));
    let refused = Expression::compile("variables.m > 1", &scope, Wanted::Bool).expect_err("unknown");
    assert_eq!(refused.to_string(), "compilation failed: undefined field 'm'");
    let computed: Computed = [("n".to_owned(), Ok(Value::Int(2)))].into();
    let bindings = Bindings::default().with("variables", Binding::Computed(&computed));
    assert_eq!(expression.holds(&bindings, &mut Budget::new()), Ok(true));
}

// INV-10
#[test]
fn a_spent_budget_answers_nothing() {
    let scope = Scope(vec![Variable::json("object", None)]);
    let expression = Expression::compile("object.a == 1", &scope, Wanted::Bool).expect("compiles");
    let object = json!({ "a": 1 });
    let bindings = Bindings::default().with("object", Binding::Json(&object, None));
    let mut budget = Budget::new();
    assert_eq!(expression.holds(&bindings, &mut budget), Ok(true));
    budget.take(u64::MAX);
    assert_eq!(expression.holds(&bindings, &mut budget), Err(EvaluateError::Spent));
}

#[test]
fn no_source_can_stop_the_compiler() {
    let scope = Scope(vec![Variable::json("self", None)]);
    for source in [
        "(".repeat(60),
        "-".repeat(60),
        "!".repeat(60) + "true",
        "[".repeat(60) + &"]".repeat(60),
        "self".to_owned() + &".a".repeat(1499),
        "1".to_owned() + &" + 1".repeat(1499),
        "true".to_owned() + &" ? true : true".repeat(100),
        "\"".to_owned(),
        "'\\x'".to_owned(),
        "self.all(x, ".repeat(50) + "true" + &")".repeat(50),
        "\u{0}\u{1}\u{2}".to_owned(),
        "has(self)".to_owned(),
        "self.map(1, 2)".to_owned(),
        "{1: 2, 'a': {}}.size() + x{}".to_owned(),
        "99999999999999999999".to_owned(),
        "b'\\377' == b''".to_owned(),
    ] {
        let compiled = Expression::compile(&source, &scope, Wanted::Any);
        let object = json!({});
        let bindings = Bindings::default().with("self", Binding::Json(&object, None));
        if let Ok(expression) = compiled {
            let _ = expression.evaluate(&bindings, &mut Budget::new());
        }
    }
}
