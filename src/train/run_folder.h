// Which files of a run's folder are the run's own (docs/run_folder.md, "Whose files").
//
// record.json, written before anything else, names the files that a run or a comparison writes, with a fingerprint of
// those that must not be mistaken: config.yaml and the files of model/. Only what it proves is replaced or removed. A
// folder's own path may lead through links; a link at one of the names, or inside model/ or rows/, is refused.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/folder_lock.h"

namespace mantissa {

class RunFolder {
 public:
  enum class Kind { kRun, kComparison };
  static constexpr const char* kRecord = "record.json";

  // Locks the folder where it is there, else claim() does. Changes nothing else. Exit::kUsage when another process
  // works there, for a folder of the other kind, and for a file of one of the names that is not the folder's own: it
  // is named. Exit::kStorage for a link, pipe or device of one of the names.
  // `identity` is the config that a comparison is begun with, by which one of an earlier version that has not ended a
  // row is recognised.
  RunFolder(std::string path, Kind kind, std::string_view identity = {});
  // Unlocks; a folder that claim() made and nobody filled goes.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const;
  // What is to be said of the lock, once; "" where nothing is.
  const std::string& lock_note() const;

  // Makes the folder where it is not there, and locks it.
  void claim();
  // Begins anew with the config whose text will be config.yaml: the record is written, own files of before and
  // checkpoints go, but for model/ and rows/ (removed rows: drop_rows). Then every other name is free.
  void begin(std::string_view config);
  // A comparison or a run that goes on: its record is there or is written. A config.yaml with another text, as an
  // earlier version or another start wrote it, goes; of a run also what says that it has ended.
  void go_on(std::string_view config);
  // Removes rows/ folders whose names are not among `kept`, as far as they are own.
  void drop_rows(const std::vector<std::string>& kept);
  // Removes the run's checkpoints.
  void drop_checkpoints();
  // Throws when the lock is lost.
  void expect_held() const;

  // A free place beside model/, where the new one is written.
  std::string new_model() const;
  // The folder at new_model() becomes model/, in one step where the file system can exchange names; what stood there
  // goes afterwards. Exit::kUsage when model/ is no longer the run's own: both stay.
  void place_model();
  // Removes model/ of a run before.
  void drop_model();

 private:
  // Name -> fingerprint, of the files of a model folder.
  using Files = std::map<std::string, std::string>;
  struct Record {
    std::string id;
    std::vector<std::string> names;
    std::string config_sha256;  // "": of an earlier version, which did not say
    Files model, next_model;
  };

  void examine();
  Record earlier_run() const;
  Record earlier_comparison() const;
  void read_record();
  void write_record() const;
  void expect_own_config() const;
  void expect_own_model() const;
  void expect_own_rows();
  void recover_model();
  void settle_model();
  void remove_leftovers();
  bool has(const std::string& name) const;
  [[noreturn]] void refuse_foreign(const std::string& name, const std::string& why) const;

  std::string path_, identity_, row_note_;
  Kind kind_;
  bool made_ = false, recorded_ = false;
  std::optional<FolderLock> lock_;
  Record record_;
};

}  // namespace mantissa
