#include "train/resume.h"

#include <algorithm>
#include <filesystem>

#include "base/config_difference.h"
#include "base/file.h"
#include "base/utc.h"
#include "base/version.h"
#include "train/sinks/run_log.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;

Json data_identity(const Dataset& data) {
  const DataReport& d = data.report();
  Json files = Json::array();
  for (const SourceFile& f : d.files) files.push_back({{"path", f.path}, {"sha256", f.sha256}});
  return {{"files", std::move(files)},
          {"tokenizer", d.tokenizer},
          {"tokenizer_sha256", d.tokenizer_sha256},
          {"tokenizer_path", data.tokenizer() ? data.tokenizer()->name() : ""},
          {"eos", data.eos()},
          {"rows", data.rows(Split::kTrain)},
          {"validation_rows", data.rows(Split::kValidation)}};
}

std::string device_name(const Device* device) { return device ? device->info().name : "the CPU"; }

std::string manifest_of(const Checkpoint& checkpoint) { return join_path(checkpoint.folder(), Manifest::kName); }

// A field of what save_record() wrote.
template <class T>
T field(const Checkpoint& checkpoint, const char* key) {
  const std::string path = manifest_of(checkpoint);
  try {
    return member(checkpoint.run(), key, path).get<T>();
  } catch (const nlohmann::json::exception&) {
    fail(Exit::kInput, "{}: run.{} is of another kind than a run writes", path, key);
  }
}

void expect_config(const Checkpoint& checkpoint, const TrainConfig& config) {
  const config::Difference d =
      config::first_difference(numerics_of(field<std::string>(checkpoint, "config")), config.numerics());
  if (!d.key.empty())
    fail(Exit::kUsage,
         "{}: of a run of another config: {} is {} there, {} here; give another run.dir, or --restart to train anew",
         checkpoint.folder(), d.key, d.first, d.second);
}

void expect_data(const Checkpoint& checkpoint, const Dataset& data) {
  const Json before = field<Json>(checkpoint, "data"), now = data_identity(data);
  const std::string at = checkpoint.folder();
  const auto refuse = [&](const std::string& what) {
    fail(Exit::kInput, "{}: {}; put back what the run was trained on, or --restart to train anew", at, what);
  };
  const Json &old_files = member(before, "files", manifest_of(checkpoint)), &files = now["files"];
  if (old_files.size() != files.size())
    refuse(fmt::format("was trained on {} files of data, there are {}", old_files.size(), files.size()));
  for (size_t i = 0; i < files.size(); ++i)
    if (old_files[i].value("sha256", "") != files[i].value("sha256", ""))
      refuse(fmt::format("data: {} has another content than {} had when it was trained on", files[i].value("path", ""),
                         old_files[i].value("path", "")));
  for (const char* key : {"tokenizer_sha256", "eos", "rows", "validation_rows"})
    if (before.value(key, Json()) != now[key])
      refuse(fmt::format("data: {} was {}, is {}", key, before.value(key, Json()).dump(), now[key].dump()));
}

// Rows of a micro-batch decide the sums' rounding alone, or also the blocks and tensors that scales are taken of.
bool scales_by_layout(const TrainConfig& config) {
  const std::vector<std::string> names = config.recipes(false);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) { return find_recipe(name).quantizes(); });
}

void expect_layout(const Checkpoint& checkpoint, const RunSetup& setup) {
  const auto was = field<int64_t>(checkpoint, "micro_batch"), is = setup.memory.micro_rows;
  if (was != is && scales_by_layout(setup.config))
    fail(Exit::kUsage,
         "{}: batch.micro_batch was {} rows, is {}; recipe {} takes scales of a micro-batch, so that the run would be "
         "another one: give batch.micro_batch: {}",
         checkpoint.folder(), was, is, setup.config.precision.recipe, was);
}

// Another length: the run goes on as the longer one would have come here.
void expect_schedule(const Checkpoint& checkpoint, const RunSetup& setup) {
  const auto was = field<int64_t>(checkpoint, "steps"), is = setup.steps;
  if (was == is) return;
  if (is < checkpoint.step())
    fail(Exit::kUsage, "{}: is behind step {}, the run here has {} (train.steps)", checkpoint.folder(),
         checkpoint.step(), is);
  const ScheduleConfig& schedule = setup.config.schedule;
  for (int64_t step = 1; step <= checkpoint.step(); ++step)
    if (const double before = schedule.factor(step, was), now = schedule.factor(step, is); before != now)
      fail(Exit::kUsage,
           "{}: of a run of {} steps, {} here (train.steps): with schedule {} step {} had {:.6g} of the learning rate, "
           "in a run of {} steps {:.6g}; schedule.name constant, or wsd before its decay, can go on longer",
           checkpoint.folder(), was, is, schedule.name, step, before, is, now);
}

// Losses of the last tenth of another number of steps, out of the lines that are kept.
void add_tail_again(Progress& progress, int64_t steps, const std::string& metrics, int64_t bytes) {
  progress.tail_loss = 0, progress.tail_steps = 0;
  const int64_t begin = tail_begin(steps);
  if (progress.step <= begin) return;
  const std::string text = read_text(metrics, uint64_t{1} << 40).substr(0, static_cast<size_t>(bytes));
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const Json line = parse_json(std::string_view(text).substr(at, end - at), metrics);
    const auto loss = line.find("loss");
    if (loss == line.end() || !loss->is_number() || line.value("step", int64_t{0}) <= begin) continue;
    progress.tail_loss += loss->get<double>(), ++progress.tail_steps;
  }
}

// Sizes of the run log's files; empty where there is no record of them.
Json line_files(const Json& positions) {
  const auto log = positions.find(run_log_entry().name);
  return positions.is_object() && log != positions.end() && log->is_object() ? *log : Json::object();
}

// "" or why the files in `folder` are not those of the checkpoint.
std::string lines_missing(const Json& positions, const std::string& folder) {
  const Json files = line_files(positions);
  for (const auto& [name, size] : files.items()) {
    const std::string path = join_path(folder, name);
    if (!size.is_number_integer() || size.get<int64_t>() < 0) return path + ": no size of it is recorded";
    const auto wanted = size.get<uint64_t>();
    if (wanted == 0) continue;
    if (!exists(path)) return path + ": is not there";
    if (file_size(path) < wanted)
      return fmt::format("{}: holds {} bytes, then it had {}", path, file_size(path), wanted);
  }
  return "";
}

std::string canonical(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(path, error);
  return error ? path : real.string();
}

}  // namespace

Json save_record(const RunSetup& setup, const Progress& progress, const Json& positions, const Json& about) {
  TrainConfig config = setup.config;
  Json record = {{"version", kVersion},
                 {"commit", commit()},
                 {"saved", utc_now()},
                 {"started", about.value("started", "")},
                 {"resumed", about.value("resumed", Json::array())},
                 {"config", config::dump([&config](config::Fields& f) { config.describe(f); })},
                 {"steps", setup.steps},
                 {"micro_batch", setup.memory.micro_rows},
                 {"data", data_identity(setup.data)},
                 {"device", device_name(setup.device)},
                 {"progress", to_json(progress)},
                 {"positions", positions}};
  if (setup.device) {
    record["gemm"] = setup.device->gemm_choices();
    record["attention"] = setup.device->attention_plans();
  }
  return record;
}

std::optional<ResumePoint> ResumePoint::find(const TrainConfig& config, const StartOptions& options) {
  const std::string folder = config.run.folder();
  const CheckpointStore store(join_path(folder, CheckpointStore::kFolder));
  if (!options.resume.empty()) {
    if (options.restart) fail(Exit::kUsage, "--resume and --restart: give one of the two");
    if (!exists(options.resume)) fail(Exit::kInput, "--resume: {} is not there", options.resume);
    Checkpoint named = Checkpoint::open(options.resume);
    expect_config(named, config);
    const bool own = canonical(parent_of(canonical(options.resume))) == canonical(store.folder());
    if (!own && !store.steps().empty())
      fail(Exit::kUsage,
           "--resume: {} is of another run than {}, which has checkpoints of its own; give another run.dir",
           options.resume, folder);
    ResumePoint point(store, std::move(named), own);
    point.named_ = true, point.run_ = folder;
    return point;
  }
  if (options.restart || store.steps().empty()) return std::nullopt;
  std::string reason;
  std::optional<Checkpoint> newest = store.newest([&](const std::string& why) { reason = why; }, [](const auto&) {});
  if (!newest)
    fail(Exit::kInput, "{}: none of its checkpoints can be read ({}); --restart trains anew", store.folder(), reason);
  expect_config(*newest, config);
  ResumePoint point(store, std::move(*newest), true);
  point.run_ = folder;
  return point;
}

int64_t ResumePoint::micro_rows(const TrainConfig& config) const {
  return config.batch.micro_batch == "auto" ? field<int64_t>(first_, "micro_batch") : 0;
}

void ResumePoint::set_choices(Device& device) const {
  if (field<std::string>(first_, "device") != device.info().name) return;
  if (first_.run().contains("gemm")) device.set_gemm_choices(field<std::vector<std::string>>(first_, "gemm"));
  if (first_.run().contains("attention"))
    device.set_attention_plans(field<std::vector<std::string>>(first_, "attention"));
}

void ResumePoint::expect_device(const Device* device) const {
  const auto was = field<std::string>(first_, "device");
  if (const std::string is = device_name(device); was != is)
    fail(Exit::kUsage, "{}: made on {}, device.name takes {} here; --restart trains anew", first_.folder(), was, is);
}

void ResumePoint::expect_same(const RunSetup& setup) const {
  expect_data(first_, setup.data);
  expect_schedule(first_, setup);
  expect_layout(first_, setup);
}

Behind ResumePoint::behind(const Checkpoint& checkpoint, const RunSetup& setup) const {
  const std::string path = manifest_of(checkpoint);
  Behind behind{.progress = read_progress(member(checkpoint.run(), "progress", path), path),
                .positions = field<Json>(checkpoint, "positions"),
                .own = own_,
                .source = own_ ? run_ : parent_of(parent_of(canonical(checkpoint.folder()))),
                .from = checkpoint.folder(),
                .started = field<std::string>(checkpoint, "started"),
                .resumed = field<Json>(checkpoint, "resumed")};
  if (behind.progress.step != checkpoint.step() || !behind.resumed.is_array())
    fail(Exit::kInput, "{}: its progress is not that of step {}", path, checkpoint.step());
  behind.resumed.push_back(checkpoint.step());
  const std::string missing = lines_missing(behind.positions, behind.source);
  if (own_ && !missing.empty())
    fail(Exit::kInput,
         "{}; put it back as it was behind step {}, or go on in another folder with --run.dir=DIR --resume={}", missing,
         checkpoint.step(), checkpoint.folder());
  if (!missing.empty()) {
    behind.notes.push_back(fmt::format("{}; the lines of this run begin with step {}", missing, checkpoint.step() + 1));
    behind.positions = nullptr;
  }
  if (field<int64_t>(checkpoint, "steps") != setup.steps) {
    const Json files = line_files(behind.positions);
    if (files.contains("metrics.jsonl"))
      add_tail_again(behind.progress, setup.steps, join_path(behind.source, "metrics.jsonl"),
                     files["metrics.jsonl"].get<int64_t>());
    else
      behind.progress.tail_loss = 0, behind.progress.tail_steps = 0;
  }
  const auto device = field<std::string>(checkpoint, "device");
  if (const std::string here = device_name(setup.device); device != here)
    behind.notes.push_back(
        fmt::format("the run was trained on {} so far and goes on on {}: not in the bits that one of them would give",
                    device, here));
  return behind;
}

Behind ResumePoint::fill(Engine& engine, const RunSetup& setup) const {
  const auto restore = [&](const Checkpoint& checkpoint) {
    checkpoint.restore([&](const StateVisitor& f) { engine.visit_state(f); });
  };
  if (named_) {
    restore(first_);
    return behind(first_, setup);
  }
  std::vector<std::string> notes;
  const std::optional<Checkpoint> taken = store_.newest([&](const std::string& why) { notes.push_back(why); }, restore);
  if (!taken)
    fail(Exit::kInput, "{}: none of its checkpoints can be read ({}); --restart trains anew", store_.folder(),
         notes.empty() ? "they went" : notes.back());
  if (taken->step() != first_.step()) {
    expect_config(*taken, setup.config);
    expect_data(*taken, setup.data);
    expect_schedule(*taken, setup);
    expect_layout(*taken, setup);
  }
  Behind found = behind(*taken, setup);
  for (std::string& note : notes) note = "checkpoint passed over: " + note;
  found.notes.insert(found.notes.begin(), notes.begin(), notes.end());
  return found;
}

bool bring_lines(const Behind& behind, const std::string& folder) {
  if (behind.own || behind.positions.is_null()) return behind.own;
  const Json files = line_files(behind.positions);
  for (const auto& [name, size] : files.items()) {
    const auto bytes = size.get<size_t>();
    if (bytes > 0)
      write_atomic(join_path(folder, name),
                   read_text(join_path(behind.source, name), uint64_t{1} << 40).substr(0, bytes));
  }
  return true;
}

}  // namespace mantissa
