package router

// readHeaders adds one header for every entry of the JSON object in text, in its order, repeated keys
// included (a json column keeps them).
//
// A string's value is what the string stands for, byte for byte. null is a null value. Anything else is
// its JSON text as it stands, white space inside included. Half of a surrogate pair, which only a json column can
// hold, is U+FFFD. A column that holds NULL or a JSON null has no headers; one that holds anything else
// than an object is *Unroutable, and so is one with more than 1,000 entries.
//
// What is not JSON is *Unroutable too: PostgreSQL lets none into a json column, but this function does not
// rely on it.
func (rec *Record) readHeaders(text []byte) error {
	if text == nil {
		return nil
	}
	o := object{text: text}
	o.skipSpace()
	if o.takeLiteral("null") {
		return o.end()
	}
	if !o.take('{') {
		return unroutable(`headers column is not a JSON object: write an object like {"traceparent": "…"}, or NULL`)
	}
	o.skipSpace()
	if o.take('}') {
		return o.end()
	}
	for entries := 1; ; entries++ {
		if entries > maxHeaders {
			return unroutable("headers column has more than %d entries", maxHeaders)
		}
		if err := rec.readEntry(&o); err != nil {
			return err
		}
		o.skipSpace()
		if o.take('}') {
			return o.end()
		}
		if !o.take(',') {
			return o.fault()
		}
		o.skipSpace()
	}
}

// readEntry adds the header of one `"key": value`.
func (rec *Record) readEntry(o *object) error {
	start := len(rec.buf)
	var ok bool
	if rec.buf, ok = o.appendString(rec.buf); !ok {
		return o.fault()
	}
	key := rec.sinceString(start)
	o.skipSpace()
	if !o.take(':') {
		return o.fault()
	}
	o.skipSpace()
	if o.next() == '"' {
		start = len(rec.buf)
		if rec.buf, ok = o.appendString(rec.buf); !ok {
			return o.fault()
		}
		rec.add(key, rec.since(start))
		return nil
	}
	if o.takeLiteral("null") {
		rec.add(key, nil)
		return nil
	}
	raw := o.at
	if !o.skipValue(2) { // the object that we are in is level 1
		return o.fault()
	}
	rec.add(key, rec.copied(o.text[raw:o.at]))
	return nil
}
