// Runs first in every context, and gives the one function through which the worker speaks
// with it: JSON in, JSON out. What a snippet changes in its own realm it changes for itself:
// whoever reads what comes out of here trusts none of it.
(() => {
  "use strict";
  const ask = globalThis.__ask;
  delete globalThis.__ask;
  const evaluate = eval;
  const globe = globalThis;
  // Held here: a context may bring names like these along, and a snippet may assign to them.
  const { parse, stringify } = JSON;
  const { defineProperty, getOwnPropertyDescriptor, is, keys: keysOf } = Object;
  const { isFinite } = Number;
  const { isArray } = Array;
  const listOf = Array.from.bind(Array);
  const { ownKeys } = Reflect;
  const [BigIntOf, BooleanOf, NumberOf, StringOf, DateOf, MapOf, SetOf, BytesOf, WeakMapOf, ProxyOf] = [
    BigInt, Boolean, Number, String, Date, Map, Set, Uint8Array, WeakMap, Proxy,
  ];
  const [ErrorOf, MissingError] = [Error, ReferenceError];
  const asyncIterator = Symbol.asyncIterator;
  const kindOf = Object.prototype.toString;
  const MAX_DEPTH = 64;
  const OWN_LINES = 20000; // this text begins below all lines a snippet can have
  let pending = { state: "none" };
  let room = 0;

  class Refusal {
    #ours = true;
    constructor(what, why) {
      this.what = what;
      this.why = why;
    }
    static is(thrown) { // asks no proxy
      return typeof thrown === "object" && thrown !== null && #ours in thrown;
    }
  }

  class HostError extends ErrorOf {}
  HostError.prototype.name = "HostError";

  // -- values, in ------------------------------------------------------------------------

  const STRANGERS = new WeakMapOf(); // what stands for something of the caller's, and the words that refuse it
  const refusalOf = WeakMapOf.prototype.get.bind(STRANGERS);

  function refused(what) {
    const refusal = new Refusal(what, "it stays outside; hand in plain values within the limits, functions=, or expose() its type");
    const refuse = () => {
      throw refusal;
    };
    const traps = {};
    for (const name of ownKeys(Reflect)) {
      if (typeof name === "string") traps[name] = refuse;
    }
    const stranger = new ProxyOf(function () {}, traps);
    STRANGERS.set(stranger, refusal);
    return stranger;
  }

  const READERS = {
    big: BigIntOf,
    date: (text) => new DateOf(text),
    number: NumberOf,
    bytes: (numbers) => new BytesOf(numbers),
    set: (items) => new SetOf(items.map(take)),
    pairs: (pairs) => new MapOf(pairs.map(([key, item]) => [take(key), take(item)])),
    refused,
  };

  function take(form) {
    if (form === null || typeof form !== "object") return form;
    if (isArray(form)) return form.map(take);
    const tag = form.$;
    if (tag !== undefined) return READERS[tag](form.v);
    const made = {};
    for (const key of keysOf(form)) {
      defineProperty(made, key, { value: take(form[key]), writable: true, enumerable: true, configurable: true });
    }
    return made;
  }

  // -- values, out -----------------------------------------------------------------------

  function charge(bytes) {
    room -= bytes;
    if (room < 0) throw new Refusal("the result, or what a function was given", "it is too large");
  }

  function give(value, depth = 0) {
    charge(16);
    switch (typeof value) {
      case "undefined":
        return null;
      case "boolean":
        return value;
      case "string":
        charge(value.length);
        return value;
      case "number":
        return isFinite(value) && !is(value, -0) ? value : { $: "number", v: StringOf(value) === "0" ? "-0.0" : StringOf(value) };
      case "bigint": {
        const digits = (value < 0n ? -value : value).toString(16);
        charge(digits.length);
        return { $: "big", v: (value < 0n ? "-0x" : "0x") + digits };
      }
      case "object":
        return value === null ? null : object(value, depth + 1);
      default:
        throw refusalOf(value) ?? new Refusal(`a ${typeof value} as a result or argument`, "only plain values leave a snippet");
    }
  }

  function object(value, depth) {
    if (depth > MAX_DEPTH) throw new Refusal("the result, or what a function was given", `nested more than ${MAX_DEPTH} deep`);
    if (isArray(value)) {
      charge(8 * value.length);
      return listOf(value, (item) => give(item, depth));
    }
    const kind = kindOf.call(value).slice(8, -1);
    switch (kind) {
      case "Date":
        return { $: "date", v: value.toISOString() };
      case "Uint8Array":
        charge(8 * value.length);
        return { $: "bytes", v: listOf(value) };
      case "Set":
        return listOf(value, (item) => give(item, depth));
      case "Map":
        return { $: "pairs", v: listOf(value, ([key, item]) => [give(key, depth), give(item, depth)]) };
      case "Object":
        return plain(value, depth);
      default:
        throw new Refusal(`a ${kind} as a result or argument`, "only plain values leave a snippet");
    }
  }

  function plain(value, depth) {
    const keys = keysOf(value);
    if (keys.includes("$")) {
      return { $: "pairs", v: keys.map((key) => [give(key, depth), give(value[key], depth)]) };
    }
    const made = {};
    for (const key of keys) {
      charge(key.length);
      defineProperty(made, key, { value: give(value[key], depth), enumerable: true });
    }
    return made;
  }

  function text(value) {
    if (typeof value === "string") return value;
    if (value === undefined) throw new MissingError("it is undefined");
    if (value === null || ["number", "boolean", "bigint"].includes(typeof value)) return StringOf(value);
    if (kindOf.call(value) === "[object Date]") return value.toISOString();
    return stringify(give(value));
  }

  // -- functions of the caller's ---------------------------------------------------------

  function asked(message) {
    const answer = parse(ask(stringify(message)));
    if (answer.refused !== undefined) throw new Refusal(answer.refused, answer.why);
    if (answer.raised !== undefined) throw new HostError(answer.raised);
    return take(answer.value);
  }

  function called(name, given) {
    return asked({ call: name, arguments: given.map((item) => give(item)) });
  }

  const HOST = {
    plain: (name) => (...given) => called(name, given),
    coroutine: (name) => async (...given) => called(name, given),
    stream: (name) => (...given) => {
      let handle = null;
      const next = async () => {
        handle ??= called(name, given);
        const item = asked({ next: handle });
        return item === null ? { done: true, value: undefined } : { done: false, value: item[0] };
      };
      return { next, [asyncIterator]() { return this; } };
    },
  };

  // -- evaluating ------------------------------------------------------------------------

  const WRAPPED = {
    expr: (code) => `(() => (${code}\n))`,
    exec: (code) => `(() => {${code}\n;return typeof result === "undefined" ? undefined : result;})`,
    arguments: (code) => `(() => [${code}\n])`,
  };

  function compiled(code, mode) {
    if (mode !== "async") return evaluate(WRAPPED[mode](code));
    try {
      return evaluate(`(async () => (${code}\n))`);
    } catch (error) {
      return evaluate(`(async () => {${code}\n})`);
    }
  }

  function failed(thrown, phase) {
    const error = refusalOf(thrown) ?? thrown;
    if (Refusal.is(error)) return { refused: StringOf(error.what), why: StringOf(error.why) };
    let name = "thrown", message = "", line = null;
    try {
      name = StringOf(error?.name ?? typeof error).slice(0, 300);
      message = StringOf(error?.message ?? error).slice(0, 300);
      for (const found of StringOf(error?.stack ?? "").matchAll(/<input>:(\d+)/g)) {
        if (line === null && NumberOf(found[1]) < OWN_LINES) line = NumberOf(found[1]);
      }
    } catch (_) {
      // What was thrown has a text of its own making that fails; it goes without.
    }
    return { [phase]: name, message, line };
  }

  function outcome(run, phase) {
    try {
      return run();
    } catch (error) {
      return failed(error, phase);
    }
  }

  const DOES = {
    set: ({ values, functions }) => outcome(() => {
      const put = (name, value) => {
        if (getOwnPropertyDescriptor(globe, name)?.configurable === false) {
          throw new Refusal(`the name ${name}`, "JavaScript has it for itself; hand the value in by another");
        }
        defineProperty(globe, name, { value, writable: true, configurable: true, enumerable: true });
      };
      for (const name of keysOf(values)) put(name, take(values[name]));
      for (const name of keysOf(functions)) put(name, HOST[functions[name]](name));
      return {};
    }, "raised"),
    run({ code, mode, as }) {
      let program = null;
      const wrong = outcome(() => { program = compiled(code, mode); return null; }, "syntax");
      if (wrong !== null) return wrong;
      return outcome(() => {
        const value = program();
        if (as === "text") return { value: text(value) };
        if (as === "truth") return { value: BooleanOf(value) };
        if (as === "field" && value === undefined) throw new MissingError("it is undefined");
        return { value: give(value) };
      }, "raised");
    },
    begin({ code }) {
      let program = null;
      const wrong = outcome(() => { program = compiled(code, "async"); return null; }, "syntax");
      if (wrong !== null) return wrong;
      pending = { state: "running" };
      program().then(
        (value) => { pending = outcome(() => ({ value: give(value) }), "raised"); },
        (error) => { pending = failed(error, "raised"); },
      );
      return {};
    },
    end: () => (pending.state === undefined ? pending : { never: true }),
  };

  return (request) => {
    const message = parse(request);
    room = message.room;
    return stringify(DOES[message.do](message));
  };
})()
