;; A source of one stream `rows` with one column `n` and no row, which is well as it stands.
;;
;; Every export first asks $at whether its number is the one in which {deed} is due, and then gives
;; what lies at its address in memory, so that a test changes an answer by a patch of the data:
;;   2048 describe   2304 open   2560 check   2816 discover   3072 snapshot   3328 read
;;   3584 acknowledge   3840 schemas   4096 next
;; Below 1024 are texts; 64 holds two bytes that are no UTF-8.
(module
  (import "[export]rapidbyte:connector/source@0.2.0" "[resource-new]session"
    (func $new_session (param i32) (result i32)))
  (import "[export]rapidbyte:connector/source@0.2.0" "[resource-new]reader"
    (func $new_reader (param i32) (result i32)))
  {imports}
  (memory (export "memory") 2)
  (global $free (mut i32) (i32.const 65536))
  (global $bad (mut i32) (i32.const 0))

  (func $at (param $call i32)
    (if (i32.eq (local.get $call) (i32.const {at})) (then (call $deed))))
  (func $deed {deed})
  {more}

  ;; Texts that are handed over to it are put one behind the other and forgotten.
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    {realloc}
    (global.get $free)
    (global.set $free (i32.and (i32.const -8)
      (i32.add (i32.const 7) (i32.add (global.get $free) (local.get 3)))))
    (if (i32.gt_u (global.get $free) (i32.const 120000))
      (then (global.set $free (i32.const 65536)))))

  (func (export "{x}describe") (result i32)
    (call $at (i32.const 1)) (i32.const 2048))
  (func (export "{x}open") (param i32 i32) (result i32)
    (call $at (i32.const 2))
    (if (i32.eqz (i32.load8_u (i32.const 2304)))
      (then (i32.store (i32.const 2312) (call $new_session (i32.const 1)))))
    (i32.const 2304))
  (func (export "{x}[method]session.check") (param i32) (result i32)
    (call $at (i32.const 3)) (i32.const 2560))
  (func (export "{x}[method]session.discover") (param i32 i32 i32) (result i32)
    (call $at (i32.const 4)) (i32.const 2816))
  ;; Never called: it says that it has no queries.
  (func (export "{x}[method]session.describe-query") (param i32 i32 i32 i32 i32 i32 i32) (result i32)
    unreachable)
  ;; Never called: it says that it has no digests.
  (func (export "{x}[method]session.digest-limits") (param i32) (result i32)
    unreachable)
  (func (export "{x}[method]session.digest") (param i32) (result i32)
    unreachable)
  (func (export "{x}[method]session.digest-rows") (param i32) (result i32)
    unreachable)
  (func (export "{x}[method]session.snapshot") (param i32 i32 i32) (result i32)
    (call $at (i32.const 5)) (i32.const 3072))
  (func (export "{x}[method]session.read") (param i32 i32 i32) (result i32)
    (call $at (i32.const 6))
    (i32.store (i32.const 3336) (call $new_reader (i32.const 1)))
    (i32.const 3328))
  (func (export "{x}[method]reader.acknowledge") (param i32 i32 i32) (result i32)
    (call $at (i32.const 7)) (i32.const 3584))
  (func (export "{x}[method]reader.schemas") (param i32) (result i32)
    (call $at (i32.const 8)) (i32.const 3840))
  (func (export "{x}[method]reader.next") (param i32 i32) (result i32)
    (call $at (i32.const 9)) (i32.const 4096))
  (func (export "{x}[dtor]session") (param i32) (call $at (i32.const 10)))
  (func (export "{x}[dtor]reader") (param i32) (call $at (i32.const 10)))

  (data (i32.const 64) "\ff\fe")
  (data (i32.const 128) "wat")
  (data (i32.const 144) "{\22type\22:\22object\22}")
  (data (i32.const 176) "rows")
  (data (i32.const 192) "\00")
  ;; A list of one text, and one of a text that is none.
  (data (i32.const 208) "\80\00\00\00\03\00\00\00" "\40\00\00\00\02\00\00\00")

  ;; name, version, description, config-schema; full-refresh, no write mode, one native form.
  (data (i32.const 2048) "\80\00\00\00\03\00\00\00" "\80\00\00\00\03\00\00\00"
    "\80\00\00\00\03\00\00\00" "\90\00\00\00\11\00\00\00"
    "\c0\00\00\00\01\00\00\00" "\00\00\00\00\00\00\00\00" "\d0\00\00\00\01\00\00\00")
  ;; An error that is not said: code, message, hint, stream, column, location.
  (data (i32.const 2336) "\80\00\00\00\03\00\00\00" "\80\00\00\00\03\00\00\00"
    "\01\00\00\00\80\00\00\00\03\00\00\00" "\01\00\00\00\80\00\00\00\03\00\00\00"
    "\01\00\00\00\80\00\00\00\03\00\00\00" "\01\00\00\00\80\00\00\00\03\00\00\00")
  ;; One thing that was looked at.
  (data (i32.const 2568) "\00\15\00\00\01\00\00\00")
  (data (i32.const 5376) "\80\00\00\00\03\00\00\00")
  (data (i32.const 5480) "\80\00\00\00\03\00\00\00")
  ;; One stream.
  (data (i32.const 2824) "\00\14\00\00\01\00\00\00")
  (data (i32.const 5120) "\b0\00\00\00\04\00\00\00" "{schema_at}"
    "\d0\00\00\00\01\00\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00")
  ;; One schema.
  (data (i32.const 3840) "\10\0f\00\00\01\00\00\00")
  (data (i32.const 3856) "{schema_at}")
  ;; The end. Behind the number of a stream, at 4112, are the cursor of a checkpoint, at 4116, and the batch of
  ;; another event, at 4120, with its rows, at 4128.
  (data (i32.const 4104) "\03")
  (data (i32.const 8192) "{schema}")
  {patches}
)
