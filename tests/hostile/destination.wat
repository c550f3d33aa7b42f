;; A destination that counts rows of one column `n` and is well as it stands; see `source.wat`.
;;   2048 describe   2304 open   2560 check   2816 plan   3072 progress   3328 begin
;;   3584 open-writer   3840 write   4096 flush   4352 commit   4608 abort
;;   4736 progress of the load   4864 working   4960 schema-changes   4992 beat
(module
  (import "[export]rapidbyte:connector/destination@0.2.0" "[resource-new]session"
    (func $new_session (param i32) (result i32)))
  (import "[export]rapidbyte:connector/destination@0.2.0" "[resource-new]load"
    (func $new_load (param i32) (result i32)))
  (import "[export]rapidbyte:connector/destination@0.2.0" "[resource-new]writer"
    (func $new_writer (param i32) (result i32)))
  {imports}
  (memory (export "memory") 2)
  (global $free (mut i32) (i32.const 65536))
  (global $bad (mut i32) (i32.const 0))

  (func $at (param $call i32)
    (if (i32.eq (local.get $call) (i32.const {at})) (then (call $deed))))
  (func $deed {deed})
  {more}

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
  ;; More than 16 values go by a pointer.
  (func (export "{x}[method]session.plan") (param i32) (result i32)
    (call $at (i32.const 4)) (i32.const 2816))
  (func (export "{x}[method]session.progress") (param i32) (result i32)
    (call $at (i32.const 5)) (i32.const 3072))
  ;; Never called: it says that it has no digests.
  (func (export "{x}[method]session.digest-recipe") (param i32) (result i32)
    unreachable)
  (func (export "{x}[method]session.digest") (param i32) (result i32)
    unreachable)
  (func (export "{x}[method]session.digest-rows") (param i32) (result i32)
    unreachable)
  (func (export "{x}[method]session.working") (param i32 i32 i32) (result i32)
    (i32.const 4864))
  (func (export "{x}[method]session.beat") (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)
    (result i32) (i32.const 4992))
  (func (export "{x}[method]session.rejects") (param i32 i32 i32 i32 i32 i32 i32 i32 i32)
    (result i32) (i32.const 4960))
  (func (export "{x}[method]session.begin") (param i32 i32 i32) (result i32)
    (call $at (i32.const 6))
    (i32.store (i32.const 3336) (call $new_load (i32.const 1)))
    (i32.const 3328))
  (func (export "{x}[method]load.progress") (param i32) (result i32)
    (i32.const 4736))
  (func (export "{x}[method]load.open-writer") (param i32 i32 i32 i32 i32) (result i32)
    (call $at (i32.const 7))
    (i32.store (i32.const 3592) (call $new_writer (i32.const 1)))
    (i32.const 3584))
  ;; These three are never called: it says that it compares no keys and keeps no rejects.
  (func (export "{x}[method]load.open-keys") (param i32 i32) (result i32)
    unreachable)
  (func (export "{x}[method]writer.reject") (param i32 i32 i32 i32) (result i32)
    unreachable)
  (func (export "{x}[method]writer.refused") (param i32) (result i32)
    unreachable)
  (func (export "{x}[method]load.schema-changes") (param i32 i32) (result i32)
    (i32.const 4960))
  (func (export "{x}[method]writer.write") (param i32 i32 i32 i64) (result i32)
    (call $at (i32.const 8))
    (i64.store (i32.const 4112) (i64.add (i64.load (i32.const 4112)) (local.get 3)))
    (i32.const 3840))
  (func (export "{x}[method]writer.flush") (param i32) (result i32)
    (call $at (i32.const 9))
    (i64.store (i32.const 4480) (i64.add (i64.load (i32.const 4480)) (i64.load (i32.const 4112))))
    (i32.const 4096))
  (func (export "{x}[method]load.commit") (param i32 i32 i32) (result i32)
    (call $at (i32.const 10)) (i32.const 4352))
  (func (export "{x}[method]load.abort") (param i32) (result i32)
    (call $at (i32.const 11)) (i32.const 4608))
  (func (export "{x}[dtor]session") (param i32) (call $at (i32.const 12)))
  (func (export "{x}[dtor]load") (param i32) (call $at (i32.const 12)))
  (func (export "{x}[dtor]writer") (param i32) (call $at (i32.const 12)))

  (data (i32.const 64) "\ff\fe")
  (data (i32.const 128) "wat")
  (data (i32.const 144) "{\22type\22:\22object\22}")
  (data (i32.const 176) "n")
  (data (i32.const 192) "\01")
  (data (i32.const 208) "\80\00\00\00\03\00\00\00" "\40\00\00\00\02\00\00\00")

  ;; name, version, description, config-schema; no sync mode, replace, one native form.
  (data (i32.const 2048) "\80\00\00\00\03\00\00\00" "\80\00\00\00\03\00\00\00"
    "\80\00\00\00\03\00\00\00" "\90\00\00\00\11\00\00\00"
    "\00\00\00\00\00\00\00\00" "\c0\00\00\00\01\00\00\00" "\d0\00\00\00\01\00\00\00")
  ;; An error that is not said: code, message, hint, stream, column, location.
  (data (i32.const 2336) "\80\00\00\00\03\00\00\00" "\80\00\00\00\03\00\00\00"
    "\01\00\00\00\80\00\00\00\03\00\00\00" "\01\00\00\00\80\00\00\00\03\00\00\00"
    "\01\00\00\00\80\00\00\00\03\00\00\00" "\01\00\00\00\80\00\00\00\03\00\00\00")
  ;; location, one column at 5120, statements, notes.
  (data (i32.const 2824) "\80\00\00\00\03\00\00\00" "\00\14\00\00\01\00\00\00"
    "\d0\00\00\00\01\00\00\00" "\d0\00\00\00\01\00\00\00")
  (data (i32.const 5120) "\b0\00\00\00\01\00\00\00" "\80\00\00\00\03\00\00\00" "\00\00\00\00"
    "\01\00\00\00\80\00\00\00\03\00\00\00")
  ;; The progress of one stream: epoch 1, seq 0, no cursor, a run, not complete.
  (data (i32.const 4736) "\90\12\00\00\01\00\00\00")
  (data (i32.const 4752) "\01\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00"
    "\00\00\00\00\80\00\00\00\03\00\00\00" "\80\00\00\00\03\00\00\00")
  ;; One receipt: its location, behind rows and bytes.
  (data (i32.const 4360) "\80\11\00\00\01\00\00\00")
  (data (i32.const 4496) "\80\00\00\00\03\00\00\00")
  {patches}
)
