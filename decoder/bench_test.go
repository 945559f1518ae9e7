package decoder

import "testing"

// rowForms are one row of 11 columns and about 300 bytes in both forms.
func rowForms() map[string][]byte {
	return map[string][]byte{"text": encodeInsert(1, nativeText()), "binary": encodeInsert(1, nativeBinary())}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	rows := rowForms()
	rows["of another relation"] = encodeInsert(2, nativeText())
	large := largeRow("payload")
	for name, msg := range rows {
		d := described(t, nativeColumns(), 0)
		if _, err := d.Decode(encodeRelation(2, "public", "other", nativeColumns())); err != nil {
			t.Fatal(err)
		}
		allocs := testing.AllocsPerRun(1000, func() {
			if _, err := d.Decode(msg); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("row %s: %v allocations", name, allocs)
		}
	}
	columns := nativeColumns()
	columns[roleAggregateID].oid, columns[rolePartitionKey].oid = 2950, 20
	keys := encodeInsert(1, set(set(nativeBinary(), roleAggregateID, wire(exampleUUID16)), rolePartitionKey, wire("\x00\x00\x00\x00\x00\x00\x00\x07")))
	d := described(t, columns, 0)
	if allocs := testing.AllocsPerRun(1000, func() {
		if _, err := d.Decode(keys); err != nil {
			t.Fatal(err)
		}
	}); allocs != 0 {
		t.Errorf("printed keys: %v allocations", allocs)
	}
	for kind, msg := range map[Kind][]byte{KindBegin: examples()[0], KindCommit: examples()[1]} {
		if allocs := testing.AllocsPerRun(1000, func() {
			if _, err := d.Decode(msg); err != nil {
				t.Fatal(err)
			}
		}); allocs != 0 {
			t.Errorf("%s: %v allocations", kind, allocs)
		}
	}
	d = described(t, largeFirst(), 10)
	r := &endless{}
	if allocs := testing.AllocsPerRun(1000, func() {
		*r = endless{head: large}
		if _, err := d.DecodeLarge(r, len(large)); err != nil {
			t.Fatal(err)
		}
	}); allocs != 0 {
		t.Errorf("large row: %v allocations", allocs)
	}
}

func BenchmarkDecodeInsert(b *testing.B) {
	for name, msg := range rowForms() {
		b.Run(name, func(b *testing.B) {
			d := described(b, nativeColumns(), 0)
			b.SetBytes(int64(len(msg)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Decode(msg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
